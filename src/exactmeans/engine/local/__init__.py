"""The engine for rows in this process."""
