//! The program: reads the command line, runs the command, turns its result into an exit code. Nothing else.

use std::process::ExitCode;

use app_billing::cli::{Cli, Failure};

fn main() -> ExitCode {
    let cli = Cli::read();
    #[cfg(feature = "crash-points")]
    if let Err(error) = app_billing::crash::arm() {
        eprintln!("error: {error:#}");
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime does not start: {error}");
            return ExitCode::from(3);
        }
    };
    match runtime.block_on(cli.execute()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {:#}", failure.error());
            ExitCode::from(match failure {
                Failure::Finding(_) => 1,
                Failure::Configuration(_) => 2,
                Failure::Dependency(_) => 3,
            })
        }
    }
}
