//! Programs that must not compile, and what the compiler says of them.

/// One file per rule in `tests/ui`, with the expected message beside it (`TRYBUILD=overwrite` renews those).
#[test]
fn each_rule_is_kept_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// Those of the direct path.
#[cfg(feature = "mlx5")]
#[test]
fn each_rule_of_the_direct_path_is_kept_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/ui/mlx5/*.rs");
}
