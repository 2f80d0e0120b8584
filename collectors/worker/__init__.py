"""The inference child: orders in, run events out."""
