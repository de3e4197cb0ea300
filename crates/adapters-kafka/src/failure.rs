//! Which errors of the consumer end the stream, and what an operator is told to do. Everything else passes by itself.

use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};

/// Why the stream cannot go on, if it cannot. `fatal` is the client's fatal error, if it has one; `last_words` is
/// what the client told about it.
pub(crate) fn reason_to_fail(
    error: &ClientError,
    fatal: Option<(RDKafkaErrorCode, String)>,
    last_words: Option<&str>,
    group: &str,
) -> Option<String> {
    let told = last_words.map(|words| format!(" (\"{words}\")")).unwrap_or_default();
    let fatal = match error {
        ClientError::MessageConsumptionFatal(code) => fatal.or_else(|| Some((*code, error.to_string()))),
        _ => fatal,
    };
    if let Some((code, text)) = fatal {
        let what_to_do = match code {
            RDKafkaErrorCode::FencedInstanceId => {
                "another process runs with the same group.instance.id: give each its own, then start again"
            }
            _ => "the client cannot recover: start again",
        };
        return Some(format!("a fatal error of the Kafka client: {text}; {what_to_do}"));
    }
    match error.rdkafka_error_code()? {
        // These come once, and then the consumer stays silent for ever.
        RDKafkaErrorCode::TopicAuthorizationFailed => Some(format!(
            "the broker denies access to a topic{told}: grant this principal READ and DESCRIBE on it, then start again"
        )),
        RDKafkaErrorCode::GroupAuthorizationFailed => Some(format!(
            "the broker denies access to the consumer group `{group}`{told}: grant this principal READ on it, then \
             start again"
        )),
        RDKafkaErrorCode::InvalidSessionTimeout => Some(
            "the broker refuses the session timeout: set it within the broker's group.min.session.timeout.ms and \
             group.max.session.timeout.ms"
                .into(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumption(code: RDKafkaErrorCode) -> ClientError {
        ClientError::MessageConsumption(code)
    }

    #[test]
    fn a_transport_error_passes() {
        for code in [
            RDKafkaErrorCode::BrokerTransportFailure,
            RDKafkaErrorCode::AllBrokersDown,
            RDKafkaErrorCode::Authentication,
            RDKafkaErrorCode::UnknownTopicOrPartition,
            RDKafkaErrorCode::PollExceeded,
        ] {
            assert_eq!(reason_to_fail(&consumption(code), None, Some("down"), "billing"), None);
        }
    }

    #[test]
    fn denied_access_ends_the_stream_and_says_what_to_grant() {
        let denied = consumption(RDKafkaErrorCode::TopicAuthorizationFailed);
        let reason = reason_to_fail(&denied, None, Some("orders: denied"), "billing").expect("fails");
        assert!(reason.contains("orders: denied") && reason.contains("READ"), "{reason}");
        let denied = consumption(RDKafkaErrorCode::GroupAuthorizationFailed);
        assert!(reason_to_fail(&denied, None, None, "billing").expect("fails").contains("`billing`"));
    }

    #[test]
    fn a_fatal_error_ends_the_stream() {
        let error = ClientError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId);
        let reason = reason_to_fail(&error, None, None, "billing").expect("fails");
        assert!(reason.contains("group.instance.id"), "{reason}");
        let fatal = Some((RDKafkaErrorCode::Fatal, "broken".to_owned()));
        assert!(reason_to_fail(&consumption(RDKafkaErrorCode::Fatal), fatal, None, "billing").is_some());
    }
}
