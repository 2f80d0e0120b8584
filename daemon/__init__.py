"""Records in: scheduled, paired, stored and served."""
