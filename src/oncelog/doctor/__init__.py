"""What is wrong with a data folder, and what can be done about it."""
