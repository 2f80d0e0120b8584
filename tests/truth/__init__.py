"""A ground truth for energy that shares no code with the product or with its simulator."""
