//! A private PostgreSQL where none is installed: fetched once, shared, and explained when it cannot be had.

use std::{
    env,
    error::Error,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
    sync::Mutex,
};

use sandbox::postgres::{Binaries, PostgresError, PostgresOptions, PrivatePostgres, Progress};
use tempfile::TempDir;
use tokio::{net::TcpStream, try_join};

/// Set in a child to the folder in which its cache folder shall be.
const CACHES: &str = "SANDBOX_TEST_CACHES";

#[tokio::test]
async fn a_server_is_fetched_once_for_starts_at_once_and_later_ones() {
    let Some(caches) = env::var_os(CACHES) else {
        // With a umask that closes everything to others, since root runs the server under another account.
        let caches = caches();
        let output = again("a_server_is_fetched_once_for_starts_at_once_and_later_ones", caches.path(), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    };
    let cache = Path::new(&caches).join("ours/postgresql");
    let told = Mutex::new(Vec::new());
    let progress = |progress| told.lock().unwrap().push(progress);

    let (one, other) = try_join!(start(&cache, &progress), start(&cache, &progress)).unwrap();

    for server in [&one, &other] {
        TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        assert_eq!(fs::read_to_string(server.folder().join("data/PG_VERSION")).unwrap().trim(), "17");
        assert_eq!(fs::metadata(server.folder()).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let told: Vec<Progress> = std::mem::take(&mut told.lock().unwrap());
    let downloads = told.iter().filter(|progress| matches!(progress, Progress::Downloading { .. }));
    assert_eq!(downloads.count(), 1, "{told:?}");
    assert_eq!(told.len(), 2, "the other waits: {told:?}");

    start(&cache, &|progress| panic!("nothing takes long any more: {progress}")).await.unwrap();

    drop((one, other));
    // As a process leaves it that is killed while it unpacks.
    let folder = told.iter().find_map(|progress| match progress {
        Progress::Downloading { to, .. } => Some(to),
        Progress::AwaitingDownload { .. } => None,
    });
    let (folder, part) = (folder.unwrap(), folder.unwrap().with_added_extension("part"));
    assert!(!part.exists(), "nothing is left of what was unpacked");
    fs::create_dir(&part).unwrap();
    fs::rename(folder, part.join("unpacked")).unwrap();
    fs::write(part.join("unpacked/bin/postgres"), "half a program").unwrap();
    start(&cache, &|_| ()).await.unwrap();
}

#[tokio::test]
async fn a_source_that_cannot_be_reached_says_what_to_do() {
    if let Some(caches) = env::var_os(CACHES) {
        let error = start(&Path::new(&caches).join("ours"), &|progress| println!("{progress}")).await.unwrap_err();
        assert!(matches!(error, PostgresError::NotFetched { .. }), "{error:?}");
        println!("{}", with_sources(&error));
        return;
    }
    let caches = caches();
    // Nobody listens at port 9, where this sends all requests.
    let nowhere = [("HTTPS_PROXY", "http://127.0.0.1:9"), ("https_proxy", "http://127.0.0.1:9"), ("NO_PROXY", "")];
    let output = again("a_source_that_cannot_be_reached_says_what_to_do", caches.path(), &nowhere);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let to = caches.path().join("ours");
    for part in [
        "(15 MB) to ",
        "Maven Central (io.zonky.test.postgres)",
        "SANDBOX_PG_BIN",
        "DATABASE_URL",
        "HTTPS_PROXY",
        to.to_str().unwrap(),
    ] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    let names = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let servers: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    assert_eq!(servers, [""; 0], "nothing that would be taken for a server");
}

#[tokio::test]
async fn a_folder_that_is_named_is_used_and_nothing_else() {
    if env::var_os(CACHES).is_some() {
        let error = PrivatePostgres::start(PostgresOptions::default(), &|progress| println!("{progress}")).await;
        println!("{}", error.unwrap_err());
        return;
    }
    let caches = caches();
    let folder = caches.path().to_str().unwrap();
    let output = again("a_folder_that_is_named_is_used_and_nothing_else", caches.path(), &[("SANDBOX_PG_BIN", folder)]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("{folder} has no initdb and postgres of PostgreSQL 14 or newer")), "{said}");
}

async fn start(cache: &Path, progress: &(dyn Fn(Progress) + Send + Sync)) -> Result<PrivatePostgres, PostgresError> {
    let binaries = Binaries::Fetched { cache: cache.to_owned() };
    PrivatePostgres::start(PostgresOptions { binaries, ..PostgresOptions::default() }, progress).await
}

/// A folder that every account may enter, like that of root's caches.
fn caches() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap()
}

/// This very test again, in a process of its own that is told the folder.
fn again(test: &str, caches: &Path, variables: &[(&str, &str)]) -> Output {
    let ours = env::current_exe().unwrap();
    Command::new("/bin/sh")
        .args(["-c", r#"umask 077; exec "$@""#, "sh"])
        .arg(ours)
        .args(["--exact", &format!("postgres::{test}"), "--nocapture"])
        .env(CACHES, caches)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn with_sources(error: &dyn Error) -> String {
    let mut chain = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        chain += &format!(": {source}");
        next = source.source();
    }
    chain
}
