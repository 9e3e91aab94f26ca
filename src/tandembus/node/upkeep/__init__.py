"""Backup, restore and check of a whole data folder, with the namespace running or stopped."""
