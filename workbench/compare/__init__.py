"""Why one measurement differs from another, from results of bench and runs; it measures nothing."""
