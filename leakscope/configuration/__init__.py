"""What a project and its environment choose: ``[tool.leakscope]`` and ``LEAKSCOPE_*``."""
