"""The embedded messaging store, on LMDB."""
