//! The Docker engine: whether it answers, which images it has, and what a run left behind in it.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, bail};
use testcontainers::{
    GenericImage,
    bollard::{
        Docker,
        errors::Error,
        models::ContainerSummary,
        query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder},
    },
    core::client::docker_client_instance,
    runners::AsyncRunner,
};
use tokio::time::timeout;

use crate::{
    request::{describe, name_and_tag},
    run::{self, Run},
};

/// How long the engine may take to answer at all.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long an image may take to be pulled.
const PULL_LIMIT: Duration = Duration::from_secs(600);

/// What the engine answers for something that it does not have, or has no more.
const NOT_FOUND: u16 = 404;
/// What it answers while something is being removed already.
const CONFLICT: u16 = 409;

pub(crate) struct Engine {
    docker: Docker,
    version: String,
}

impl Engine {
    /// # Errors
    /// When no engine answers within 2 s.
    pub(crate) async fn reach() -> Result<Self> {
        let docker = docker_client_instance().await.map_err(describe)?;
        let answer = timeout(ANSWER_LIMIT, async {
            docker.ping().await?;
            docker.version().await
        });
        let version = match answer.await {
            Ok(answered) => answered.context("Docker does not answer")?.version,
            Err(_) => bail!("Docker does not answer within {ANSWER_LIMIT:?}"),
        };
        Ok(Self { docker, version: version.unwrap_or_default() })
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Pulls the image unless it is here.
    ///
    /// # Errors
    /// When it can not be pulled; the error says what else there is to do.
    pub(crate) async fn provide(&self, image: &str, note: impl FnOnce(String)) -> Result<()> {
        match self.docker.inspect_image(image).await {
            Ok(_) => return Ok(()),
            Err(Error::DockerResponseServerError { status_code: NOT_FOUND, .. }) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot look for the image {image}")),
        }
        note(format!("pulling {image}"));
        let (name, tag) = name_and_tag(image);
        let pull = async { GenericImage::new(name, tag).pull_image().await.map_err(describe) };
        let pulled = timeout(PULL_LIMIT, pull).await.with_context(|| format!("not done after {PULL_LIMIT:?}"));
        pulled.and_then(|pulled| pulled.map(drop)).with_context(|| {
            format!(
                "the image {image} is not here and cannot be pulled: name others by TEST_KAFKA_IMAGE and \
                 TEST_POSTGRES_IMAGE; docker/build builds both"
            )
        })
    }

    /// Removes the containers of runs of this machine that live no more. Returns what they were.
    pub(crate) async fn remove_left_over(&self) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for container in self.containers(run::KIND_LABEL.to_owned()).await? {
            if container.labels.as_ref().is_some_and(run::is_left_over) {
                self.remove_container(&container).await?;
                removed.push(format!("a container of {}", container.image.unwrap_or_default()));
            }
        }
        Ok(removed)
    }

    /// Removes all that the run has started.
    pub(crate) async fn remove(&self, run: &Run) -> Result<()> {
        for container in self.containers(run.own_label()).await? {
            self.remove_container(&container).await?;
        }
        Ok(())
    }

    async fn containers(&self, label: String) -> Result<Vec<ContainerSummary>> {
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        self.docker.list_containers(Some(options)).await.context("cannot list the containers")
    }

    /// With the volumes that nobody named. Another process may be at it too: gone is gone.
    async fn remove_container(&self, container: &ContainerSummary) -> Result<()> {
        let id = container.id.as_deref().unwrap_or_default();
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.docker.remove_container(id, Some(options)).await {
            Ok(()) => Ok(()),
            Err(Error::DockerResponseServerError { status_code: NOT_FOUND | CONFLICT, .. }) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove the container {id}")),
        }
    }
}
