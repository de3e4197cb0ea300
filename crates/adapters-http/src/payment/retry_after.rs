//! The header `Retry-After`. Pure: the time is an argument.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest wait that is believed. A provider that says more is asked again after this.
const LONGEST: Duration = Duration::from_secs(3600);

/// The wait that the answer asks for, in seconds or as a date; none if it is not understood.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.parse().map_or(LONGEST, Duration::from_secs)
    } else {
        httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or(Duration::ZERO)
    };
    Some(wait.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn seconds_and_dates_are_honoured_and_capped() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wait = |value: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        for (value, seconds) in [
            ("0", Some(0)),
            ("1", Some(1)),
            (" 120 ", Some(120)),
            ("3600", Some(3600)),
            ("3601", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", Some(10)),
            ("Sun Nov  6 08:49:47 1994", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(0)),
            ("Fri, 06 Nov 2082 08:49:37 GMT", Some(3600)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(wait(value), seconds, "{value:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
