//! What must not compile: a handler without the claim, a proof made by hand, a dedup key from an offset.

#[test]
fn a_handler_without_the_claim_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
