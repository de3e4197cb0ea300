//! The URLs of charges and look-ups, from the base that an operator wrote.

use std::net::IpAddr;

use core_order::EventId;
use reqwest::Url;

use super::settings::PaymentConfigError;

/// `{base}/charges`.
pub(super) fn charges_url(base: &str) -> Result<Url, PaymentConfigError> {
    let mut url = Url::parse(base.trim()).map_err(|error| PaymentConfigError::Url(error.into()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(PaymentConfigError::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(PaymentConfigError::Credentials);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(PaymentConfigError::QueryOrFragment);
    }
    // `Url::join` would replace the last segment of a base without a slash at its end.
    let path = format!("{}/charges", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// `{base}/charges?idempotency_key=<event id>`.
pub(super) fn look_up_url(charges: &Url, key: EventId) -> Url {
    let mut url = charges.clone();
    url.query_pairs_mut().append_pair("idempotency_key", &key.to_string());
    url
}

/// Whether whatever goes to this URL can be read on the way: plain HTTP that leaves the machine.
pub(super) fn is_in_the_clear(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let loopback = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(addr) => addr.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').rsplit('.').next() == Some("localhost"),
    };
    url.scheme() == "http" && !loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_asks_for_the_key_of_the_event() {
        let key: EventId = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f".parse().unwrap();
        let url = look_up_url(&charges_url("https://pay.test/v1/").unwrap(), key);
        assert_eq!(url.as_str(), "https://pay.test/v1/charges?idempotency_key=017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    }

    #[test]
    fn only_plain_http_to_another_machine_is_in_the_clear() {
        let clear = |base| is_in_the_clear(&charges_url(base).expect(base));
        for base in
            ["http://pay.test", "http://10.0.0.1:80", "http://[fe80::1]", "http://localhost.pay.test", "http://0.0.0.0"]
        {
            assert!(clear(base), "{base}");
        }
        for base in [
            "https://pay.test",
            "http://127.0.0.1:8090",
            "http://127.8.8.8",
            "http://[::1]:80",
            "http://[::ffff:127.0.0.1]",
            "http://localhost:8090",
            "http://LOCALHOST.",
            "http://pay.localhost",
        ] {
            assert!(!clear(base), "{base}");
        }
    }

    #[test]
    fn the_path_is_appended_with_or_without_a_slash() {
        for (base, url) in [
            ("http://pay.test", "http://pay.test/charges"),
            ("http://pay.test/", "http://pay.test/charges"),
            ("https://pay.test:8443/api/v1", "https://pay.test:8443/api/v1/charges"),
            ("https://pay.test/api/v1/", "https://pay.test/api/v1/charges"),
            ("https://pay.test/api/v1//", "https://pay.test/api/v1/charges"),
            ("http://pay.test/a%20b", "http://pay.test/a%20b/charges"),
            (" http://[::1]:80 ", "http://[::1]/charges"),
        ] {
            assert_eq!(charges_url(base).expect(base).as_str(), url);
        }
    }

    #[test]
    fn a_base_that_is_none_is_refused_without_showing_it() {
        let refused = |base: &str| charges_url(base).expect_err(base);
        assert!(matches!(refused("pay.test/api"), PaymentConfigError::Url(_)));
        assert!(matches!(refused("http://"), PaymentConfigError::Url(_)));
        assert!(matches!(refused(""), PaymentConfigError::Url(_)));
        assert!(matches!(refused("localhost:8080"), PaymentConfigError::Scheme(_)));
        assert!(matches!(refused("ftp://pay.test"), PaymentConfigError::Scheme(_)));
        assert!(matches!(refused("http://pay.test/?a=b"), PaymentConfigError::QueryOrFragment));
        assert!(matches!(refused("http://pay.test/#a"), PaymentConfigError::QueryOrFragment));
        for base in ["http://user:hunter2@pay.test", "http://hunter2@pay.test", "http://:hunter2@pay.test"] {
            let error = refused(base);
            assert!(matches!(error, PaymentConfigError::Credentials));
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }
}
