"""The tests of tandembus: unit (mirrors the package), contract, integration, chaos."""
