//! The URL of the charges, from the base that an operator wrote.

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

#[cfg(test)]
mod tests {
    use super::*;

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
