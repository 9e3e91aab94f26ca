"""What `tandembus spark JOB` runs: each job is a function that takes a Spark session and its options."""
