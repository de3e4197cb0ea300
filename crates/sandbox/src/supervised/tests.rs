//! The supervisor, seen from both ends.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn sleeper() -> Supervised {
    let folder = tempfile::tempdir().unwrap();
    let server = ["sleep", "600"].map(OsString::from);
    Supervised::new("a sleeper", Command::new("/bin/sh"), folder, "KILL", &server).unwrap()
}

async fn launch(server: &mut Supervised) {
    let has_process = |server: &Supervised, _| server.process_id().is_some();
    server.launch(Duration::from_secs(5), has_process).await.unwrap();
}

fn is_alive(process_id: u32) -> bool {
    let asked = Command::new("kill").args(["-0", &process_id.to_string()]).stderr(Stdio::null()).status();
    asked.unwrap().success()
}

#[tokio::test]
async fn letting_go_ends_the_server_and_removes_its_folder() {
    let mut server = sleeper();
    launch(&mut server).await;
    let (folder, process_id) = (server.folder().to_owned(), server.process_id().unwrap());
    assert!(is_alive(process_id));
    drop(server);
    assert!(!is_alive(process_id));
    assert!(!folder.exists());
}

#[tokio::test]
async fn letting_go_right_after_the_launch_ends_the_server() {
    let mut server = sleeper();
    let folder = server.folder().to_owned();
    server.order("start").unwrap();
    drop(server);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_stopped_server_keeps_its_folder_and_starts_again() {
    let mut server = sleeper();
    launch(&mut server).await;
    let first = server.process_id();
    server.stop("TERM", Duration::from_secs(5)).await.unwrap();
    assert_eq!(server.exit_status().as_deref(), Some("143"));
    assert!(server.folder().exists());
    launch(&mut server).await;
    assert_ne!(server.process_id(), first);
    assert_eq!(server.exit_status(), None);
}

#[tokio::test]
async fn a_folder_that_cannot_be_removed_at_once_goes_as_well() {
    // As if somebody wrote into the folder: the first removal fails.
    let programs = tempfile::tempdir().unwrap();
    let (remove, refused) = (programs.path().join("rm"), programs.path().join("refused"));
    let script = format!("#!/bin/sh\n[ -e {0} ] && exec /bin/rm \"$@\"\n: >{0}; exit 1\n", refused.display());
    fs::write(&remove, script).unwrap();
    fs::set_permissions(&remove, fs::Permissions::from_mode(0o755)).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.env("PATH", format!("{}:/usr/bin:/bin", programs.path().display()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    drop(Supervised::new("a sleeper", shell, folder, "KILL", &["sleep".into(), "600".into()]).unwrap());
    assert!(refused.exists(), "the first removal was refused");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_last_signal_that_is_lost_is_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let deaf = "trap 'trap - TERM' TERM; echo deaf; while :; do sleep 0.01; done";
    let server = ["sh", "-c", deaf].map(OsString::from);
    let mut server = Supervised::new("a deaf one", Command::new("/bin/sh"), folder, "TERM", &server).unwrap();
    let is_deaf = |server: &Supervised, begin| server.log_from(begin).contains("deaf");
    server.launch(Duration::from_secs(5), is_deaf).await.unwrap();
    drop(server);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_signal_to_everybody_spares_the_supervisor() {
    let mut server = sleeper();
    launch(&mut server).await;
    let everybody = format!("-{}", server.shell.id());
    let sent = Command::new("kill").args(["-TERM", "--", &everybody]).status().unwrap();
    assert!(sent.success());
    let ended = wait_until_now("the server to end", Duration::from_secs(5), || server.exit_status().is_some());
    ended.await.unwrap();
    assert_eq!(server.exit_status().as_deref(), Some("143"), "the server is not spared");
    launch(&mut server).await;
    let folder = server.folder().to_owned();
    drop(server);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_server_that_ends_at_once_is_an_error_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = ["sh", "-c", "echo no luck; exit 7"].map(OsString::from);
    let mut server = Supervised::new("a failure", Command::new("/bin/sh"), folder, "KILL", &server).unwrap();
    let error = server.launch(Duration::from_secs(5), |_, _| false).await.unwrap_err();
    assert_eq!(error.to_string(), "a failure ended with status 7; its log ends:\nno luck");
}
