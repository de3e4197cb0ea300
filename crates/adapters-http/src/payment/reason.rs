//! The provider's words in ours: bounded, without control characters and without the API key, because they end up
//! in logs, headers and tables.

use super::secret::Secret;

/// The longest text of the provider that is passed on, in bytes.
const LONGEST: usize = 512;

/// What the key is replaced with.
const HIDDEN: &str = "[api key]";

/// The start of an answer's body as one line of text.
pub(super) fn provider_text(body: &[u8], api_key: Option<&Secret>) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    // Before anything is cut, or a part of the key could stay.
    if let Some(key) = api_key {
        text = hide(text, key.expose());
    }
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = text.trim();
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST - '…'.len_utf8());
    format!("{}…", text.get(..end).unwrap_or_default())
}

fn hide(text: String, key: &str) -> String {
    if key.is_empty() {
        return text;
    }
    let text = text.replace(key, HIDDEN);
    let escaped = serde_json::to_string(key).expect("a string always serializes");
    let text = text.replace(escaped.trim_matches('"'), HIDDEN);
    // A body that was cut in the middle of the key ends with a part of it.
    let part = key.char_indices().map(|(end, _)| end).rev().filter(|end| *end >= 4).find_map(|end| {
        let part = key.get(..end)?;
        text.strip_suffix(part)
    });
    match part {
        Some(rest) => format!("{rest}{HIDDEN}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_bounded_line() {
        assert_eq!(provider_text(b"card\r\ndeclined\0\x1b[31m\n", None), "card  declined  [31m");
        assert_eq!(provider_text(b"\xff\xfe", None), "\u{fffd}\u{fffd}");
        assert_eq!(provider_text(b"", None), "");
        for long in ["a".repeat(70_000), "é".repeat(300), "x".to_owned() + &"😀".repeat(200)] {
            let text = provider_text(long.as_bytes(), None);
            assert!(text.len() <= 512 && text.len() > 500 && text.ends_with('…'), "{}", text.len());
        }
        assert_eq!(provider_text("a".repeat(512).as_bytes(), None), "a".repeat(512));
    }

    #[test]
    fn the_api_key_is_hidden_wherever_it_stands() {
        let key = Secret::new("sk_live_4242\"x");
        let at_the_bound = format!("{}sk_live_4242\"x", "a".repeat(500));
        for body in [
            "bad key sk_live_4242\"x, sk_live_4242\"x".as_bytes(),
            br#"{"error":"bad key sk_live_4242\"x"}"#,
            at_the_bound.as_bytes(),
            b"cut: sk_live_42",
            b"cut: sk_l",
        ] {
            let text = provider_text(body, Some(&key));
            assert!(!text.contains("sk_l"), "{text}");
        }
        assert_eq!(provider_text(b"fine", Some(&Secret::new(""))), "fine");
        assert_eq!(format!("{key:?}"), "Secret(…)");
    }
}
