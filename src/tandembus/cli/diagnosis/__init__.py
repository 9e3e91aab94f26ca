"""What `tandembus doctor` looks at: one module for each part of the machine and of the namespace."""
