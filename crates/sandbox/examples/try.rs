//! Temporary.
use sandbox::postgres::*;
#[tokio::main]
async fn main() {
    let begun = std::time::Instant::now();
    match PrivatePostgres::start(PostgresOptions::default(), &|p| println!("{p}")).await {
        Ok(pg) => {
            println!("{} after {:?}", pg.url("postgres"), begun.elapsed());
            let status =
                std::process::Command::new("cat").arg(format!("/proc/{}/cmdline", pg.process_id().unwrap())).status();
            println!(" {status:?}");
            let b = std::time::Instant::now();
            drop(pg);
            println!("dropped in {:?}", b.elapsed());
        }
        Err(error) => {
            let mut e: Option<&dyn std::error::Error> = Some(&error);
            while let Some(x) = e {
                println!("- {x}");
                e = x.source();
            }
        }
    }
}
