"""Drawing: shapes on a canvas, and plots."""
