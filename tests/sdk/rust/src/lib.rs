//! Tests with the crate azservicebus, an AMQP stack of its own: tests/sdk/rust/test_rust.py runs them.
#![cfg(test)]

mod bench;
mod receiving;
mod sending;
mod sessions;
mod topics;
