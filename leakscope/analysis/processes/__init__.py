"""Several processes of one run: how they ended, ranks and workers."""
