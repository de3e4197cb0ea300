//! Where the broker's jars and its Java come from; it starts no broker.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The broker's version, which is also the name of its folder in the cache.
const VERSION: &str = "4.1.1";

/// The broker, its tools and a logger: without the logger the broker says nothing, not even that it has started.
const PROJECT: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-distribution</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>@VERSION@</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>@VERSION@</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
"#;

/// The Java to run the broker with: that of `JAVA_HOME`, else the one on the `PATH`.
pub(super) fn java() -> Result<PathBuf> {
    let java = match env::var_os("JAVA_HOME") {
        Some(home) if !home.is_empty() => Path::new(&home).join("bin/java"),
        _ => PathBuf::from("java"),
    };
    let runs = Command::new(&java).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !runs.is_ok_and(|status| status.success()) {
        bail!(
            "Kafka needs Java 17 or newer, and {} does not run: install it (Debian, Ubuntu: apt-get install \
             default-jre-headless; macOS: brew install openjdk), or set JAVA_HOME",
            java.display()
        );
    }
    Ok(java)
}

/// The folder with the broker's jars, fetched once a machine.
pub(super) fn libraries() -> Result<PathBuf> {
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let libraries = cache.join(format!("kafka-{VERSION}"));
    if libraries.is_dir() {
        return Ok(libraries);
    }
    let lock = File::create(cache.join(format!("kafka-{VERSION}.lock")))?;
    lock.lock().context("cannot lock the cache folder")?;
    // Another process may have fetched them while we waited for the lock, which goes with the file.
    if !libraries.is_dir() {
        let part = cache.join(format!("kafka-{VERSION}.part"));
        fetch_into(&part)?;
        fs::rename(part.join("jars"), &libraries).with_context(|| format!("cannot create {}", libraries.display()))?;
        fs::remove_dir_all(&part)?;
    }
    Ok(libraries)
}

fn fetch_into(part: &Path) -> Result<()> {
    if part.exists() {
        fs::remove_dir_all(part)?;
    }
    fs::create_dir(part)?;
    fs::write(part.join("pom.xml"), PROJECT.replace("@VERSION@", VERSION))?;
    let output = Command::new("mvn")
        .args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"])
        .current_dir(part)
        .stdin(Stdio::null())
        .output()
        .context(
            "Kafka's jars are fetched with Maven, and mvn does not run: install it (Debian, Ubuntu: apt-get install \
             maven; macOS: brew install maven)",
        )?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("Maven could not fetch Kafka {VERSION}: {}", String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TEST_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME"))
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("testbed"))
        .context("there is no folder for Kafka's jars: set TEST_CACHE_DIR")
}
