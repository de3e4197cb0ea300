//! The copy of the sources in which guards are taken out, so that the checkout is never touched; it stays for the next
//! run, which then compiles less.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::guards::Guard;

/// The copy.
pub(super) struct Tree {
    root: PathBuf,
    /// The file that was changed, and what it was.
    changed: Option<(PathBuf, String)>,
}

impl Tree {
    /// Brings `target/mutate/tree` up to the checkout, uncommitted changes included. A file that is the same is left
    /// alone: cargo looks at its time.
    pub(super) fn copy_of(checkout: &Path) -> Result<Self> {
        let root = checkout.join("target/mutate/tree");
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(checkout)
            .output()
            .context("cannot run git, which knows what the sources are")?;
        if !listed.status.success() {
            bail!("git does not list the sources: {}", String::from_utf8_lossy(&listed.stderr).trim());
        }
        let listed = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
        let names = listed.split_terminator('\0').map(PathBuf::from);
        // What was deleted and not committed is listed all the same.
        let names: HashSet<PathBuf> = names.filter(|name| checkout.join(name).is_file()).collect();
        for name in &names {
            let (from, to) = (checkout.join(name), root.join(name));
            let bytes = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
            if fs::read(&to).is_ok_and(|copied| copied == bytes) {
                continue;
            }
            fs::create_dir_all(to.parent().expect("it lies below the root"))?;
            fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        remove_others(&root, &root, &names)?;
        Ok(Self { root, changed: None })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Takes the guard out.
    pub(super) fn replace(&mut self, guard: &Guard) -> Result<()> {
        let file = self.root.join(guard.file);
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        fs::write(&file, source.replacen(guard.text, guard.without, 1))?;
        self.changed = Some((file, source));
        Ok(())
    }

    /// Puts it in again.
    pub(super) fn restore(&mut self) -> Result<()> {
        if let Some((file, source)) = self.changed.take() {
            fs::write(file, source)?;
        }
        Ok(())
    }
}

/// Removes what an earlier checkout had. Links are not followed.
fn remove_others(root: &Path, folder: &Path, names: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, names)?;
        } else if !names.contains(path.strip_prefix(root).expect("it lies below the root")) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
