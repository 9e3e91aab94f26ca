"""The data source `servicebus`: how Spark reads and writes the entities of a namespace."""
