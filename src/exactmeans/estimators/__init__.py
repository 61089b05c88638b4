"""What the estimators share."""
