"""What memory holds as a picture: boxes as wide as their bytes, one below the other."""

from leakscope.report.icicle.view import IcicleView, comparison_icicle, icicle_view

__all__ = ["IcicleView", "comparison_icicle", "icicle_view"]
