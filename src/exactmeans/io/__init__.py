"""Files: models and checkpoints."""
