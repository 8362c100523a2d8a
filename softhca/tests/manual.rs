//! The suite in manual mode: the test steps the device, time is virtual.

mod common;
mod suite;

const MODE: softhca::Mode = softhca::Mode::Manual;
