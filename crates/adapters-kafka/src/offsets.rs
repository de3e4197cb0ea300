//! The offsets of a group that nobody is a member of, set from outside. It joins no group, and the broker itself
//! refuses it while the group has members.

use core_delivery::ports::BoxError;
use core_delivery::record::{Committable, LaneId};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};

use crate::context::Callbacks;
use crate::names::check_topic;
use crate::positions::list_with_offsets;
use crate::settings::{KafkaSettings, SettingsError};

/// Sets what the group has committed in these lanes, forwards or back. Needs a Tokio runtime. Not cancel safe: the
/// commit goes on when the future is dropped.
///
/// # Errors
/// [`OffsetsError::HasMembers`] if somebody consumes; nothing was set then. Otherwise it is not known what was set.
pub async fn commit_offsets(
    settings: &KafkaSettings,
    group: &str,
    offsets: &[(LaneId, Committable)],
) -> Result<(), OffsetsError> {
    settings.validate()?;
    offsets.iter().try_for_each(|(lane, _)| check_topic(&lane.topic))?;
    if offsets.is_empty() {
        return Ok(());
    }
    let positions: Vec<(LaneId, i64)> = offsets.iter().map(|(lane, next)| (lane.clone(), next.0)).collect();
    let config = settings.observer(group);
    let committing = tokio::task::spawn_blocking(move || {
        let client: BaseConsumer<Callbacks> = config.create_with_context(Callbacks::default())?;
        client.commit(&list_with_offsets(&positions)?, CommitMode::Sync)
    });
    let outcome = committing.await.map_err(|error| OffsetsError::Failed { source: error.into() })?;
    outcome.map_err(|error| refused(group, error))
}

fn refused(group: &str, error: ClientError) -> OffsetsError {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::UnknownMemberId
            | RDKafkaErrorCode::IllegalGeneration
            | RDKafkaErrorCode::StaleMemberEpoch
            | RDKafkaErrorCode::RebalanceInProgress
            | RDKafkaErrorCode::FencedInstanceId,
        ) => OffsetsError::HasMembers { group: group.to_owned() },
        _ => OffsetsError::Failed { source: error.into() },
    }
}

/// Why offsets were not set.
#[derive(Debug, thiserror::Error)]
pub enum OffsetsError {
    /// The settings or a name are refused.
    #[error("the Kafka settings are refused")]
    Settings(#[from] SettingsError),
    /// Somebody consumes.
    #[error("the group `{group}` has members: stop them first")]
    HasMembers {
        /// The group.
        group: String,
    },
    /// The broker did not take them.
    #[error("the broker does not take the group's offsets")]
    Failed {
        /// The client's error.
        #[source]
        source: BoxError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_are_told_apart() {
        let of = |code| refused("billing", ClientError::ConsumerCommit(code));
        assert!(
            matches!(of(RDKafkaErrorCode::UnknownMemberId), OffsetsError::HasMembers { group } if group == "billing")
        );
        assert!(matches!(of(RDKafkaErrorCode::RequestTimedOut), OffsetsError::Failed { .. }));
    }
}
