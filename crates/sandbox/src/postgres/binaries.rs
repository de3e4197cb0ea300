//! Which programs a private PostgreSQL is made of: named, installed or fetched; it starts no server.

use std::path::PathBuf;

#[cfg(feature = "fetch")]
use super::fetch;
use super::{
    blocking,
    error::PostgresError,
    installation::{self, Account},
    options::Binaries,
    progress::Listener,
};

/// The folder with `initdb` and `postgres`.
pub(super) async fn binaries(
    wanted: &Binaries,
    account: Option<Account>,
    progress: Listener<'_>,
) -> Result<PathBuf, PostgresError> {
    match wanted.clone() {
        Binaries::In(folder) => blocking(move || installation::chosen_folder(&folder)).await,
        Binaries::Found => match blocking(installation::installed).await? {
            Some(folder) => Ok(folder),
            None => not_installed(account, progress).await,
        },
        #[cfg(feature = "fetch")]
        Binaries::Fetched { cache } => fetch::fetched(&cache, progress).await,
    }
}

#[cfg(feature = "fetch")]
async fn not_installed(account: Option<Account>, progress: Listener<'_>) -> Result<PathBuf, PostgresError> {
    fetch::fetched(&fetch::cache_folder(account.is_some())?, progress).await
}

#[cfg(not(feature = "fetch"))]
async fn not_installed(_: Option<Account>, _: Listener<'_>) -> Result<PathBuf, PostgresError> {
    Err(PostgresError::NotInstalled)
}
