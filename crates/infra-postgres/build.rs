//! Builds the crate again when a migration changes: `sqlx::migrate!` notices a changed file, but not a new one.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/delivery");
}
