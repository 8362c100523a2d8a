//! Raw bindings.
