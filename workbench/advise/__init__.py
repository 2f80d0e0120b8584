"""Advice on which accelerator runs which model, from results of bench; it measures nothing."""
