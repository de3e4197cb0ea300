//! Which try of which key suffers which fault. Pure: drawn from the seed, the key and the number of the try, so a
//! run can be repeated.

use std::fmt;
use std::str::FromStr;

use super::settings::ProviderSettings;

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// 500, and nothing was charged.
    ErrorBeforeCharge,
    /// 503 with `Retry-After: 1`, and nothing was charged.
    Unavailable,
    /// 500, although it was charged.
    ErrorAfterCharge,
    /// The connection is reset, and nothing was charged.
    ResetBeforeCharge,
    /// The connection is reset, although it was charged.
    ResetAfterCharge,
    /// It was charged, and the body of the answer ends before its `Content-Length`.
    CutBody,
    /// It is charged, but the answer takes long.
    SlowAnswer,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ErrorBeforeCharge,
        Self::Unavailable,
        Self::ErrorAfterCharge,
        Self::ResetBeforeCharge,
        Self::ResetAfterCharge,
        Self::CutBody,
        Self::SlowAnswer,
    ];

    /// The word for settings and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ErrorBeforeCharge => "error_before_charge",
            Self::Unavailable => "unavailable",
            Self::ErrorAfterCharge => "error_after_charge",
            Self::ResetBeforeCharge => "reset_before_charge",
            Self::ResetAfterCharge => "reset_after_charge",
            Self::CutBody => "cut_body",
            Self::SlowAnswer => "slow_answer",
        }
    }

    /// Whether the money moves all the same.
    pub fn charges(self) -> bool {
        match self {
            Self::ErrorBeforeCharge | Self::Unavailable | Self::ResetBeforeCharge => false,
            Self::ErrorAfterCharge | Self::ResetAfterCharge | Self::CutBody | Self::SlowAnswer => true,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FaultKind {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownFault(text.to_owned()))
    }
}

/// Not the word of a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no fault; known are error_before_charge, unavailable, error_after_charge, reset_before_charge, reset_after_charge, cut_body, slow_answer"
)]
pub struct UnknownFault(pub String);

/// The fault of a key's try, which is counted from 1.
pub(super) fn fault_of(settings: &ProviderSettings, key: &str, number: u32) -> Option<FaultKind> {
    if settings.fault_share <= 0.0 || settings.max_faults_per_key == 0 || settings.fault_kinds.is_empty() {
        return None;
    }
    let key = fold(settings.seed, key);
    if share(mix(key ^ SUFFERS)) >= settings.fault_share {
        return None;
    }
    let faulty_tries = 1 + mix(key ^ TRIES) % u64::from(settings.max_faults_per_key);
    if u64::from(number) > faulty_tries {
        return None;
    }
    let kinds = settings.fault_kinds.len() as u64;
    let drawn = mix(key ^ KIND ^ u64::from(number)) % kinds;
    settings.fault_kinds.get(usize::try_from(drawn).ok()?).copied()
}

/// Whether the first try of a key suffers a fault.
pub fn suffers(settings: &ProviderSettings, key: &str) -> bool {
    fault_of(settings, key, 1).is_some()
}

/// Whether a key is declined.
pub(super) fn is_declined(settings: &ProviderSettings, key: &str, customer_id: &str) -> bool {
    customer_id.starts_with("declined")
        || settings.decline_share > 0.0 && share(mix(fold(settings.seed, key) ^ DECLINED)) < settings.decline_share
}

/// A number that looks random; different inputs give different outputs (the finalizer of SplitMix64).
pub(super) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

const SUFFERS: u64 = 0x5355_4646;
const TRIES: u64 = 0x5452_4945_0000_0000;
const KIND: u64 = 0x4b49_4e44_0000_0000;
const DECLINED: u64 = 0x4445_434c;

/// FNV-1a.
pub(super) fn fold(seed: u64, key: &str) -> u64 {
    key.bytes()
        .fold(0xcbf2_9ce4_8422_2325 ^ mix(seed), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// From 0 (included) to 1 (excluded).
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
pub(super) fn share(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(fault_share: f64) -> ProviderSettings {
        ProviderSettings { fault_share, ..ProviderSettings::default() }
    }

    #[test]
    fn the_same_seed_key_and_try_suffer_the_same_fault() {
        let settings = settings(0.5);
        let other = ProviderSettings { seed: 2, ..settings.clone() };
        let faults = |settings: &ProviderSettings| {
            (0..200).map(|n| fault_of(settings, &format!("key-{n}"), 1)).collect::<Vec<_>>()
        };
        assert_eq!(faults(&settings), faults(&settings));
        assert_ne!(faults(&settings), faults(&other));
    }

    #[test]
    fn a_share_of_the_keys_suffers_at_most_so_many_tries() {
        let settings = ProviderSettings { max_faults_per_key: 3, ..settings(0.25) };
        let mut suffering = 0;
        let mut kinds = std::collections::BTreeSet::new();
        let mut longest = 0;
        for n in 0..4_000 {
            let key = format!("key-{n}");
            let faults: Vec<_> = (1..10).map_while(|number| fault_of(&settings, &key, number)).collect();
            suffering += usize::from(!faults.is_empty());
            longest = longest.max(faults.len());
            kinds.extend(faults);
            assert!((4..10).all(|number| fault_of(&settings, &key, number).is_none()));
        }
        assert!((900..1_100).contains(&suffering), "{suffering} of 4,000 keys suffer");
        assert_eq!(longest, 3);
        assert_eq!(kinds.len(), FaultKind::ALL.len(), "{kinds:?}");
    }

    #[test]
    fn all_or_no_keys_can_suffer() {
        assert!((0..500).all(|n| fault_of(&settings(1.0), &n.to_string(), 1).is_some()));
        assert!((0..500).all(|n| fault_of(&settings(0.0), &n.to_string(), 1).is_none()));
    }

    #[test]
    fn customers_and_a_share_of_the_keys_are_declined() {
        let settings = ProviderSettings { decline_share: 0.1, ..settings(0.0) };
        let declined = (0..2_000).filter(|n| is_declined(&settings, &n.to_string(), "c-1")).count();
        assert!((150..250).contains(&declined), "{declined} of 2,000 are declined");
        assert!(is_declined(&ProviderSettings::default(), "key", "declined-7"));
        assert!(!is_declined(&ProviderSettings::default(), "key", "c-1"));
    }

    #[test]
    fn every_word_is_read_back() {
        for kind in FaultKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            let unknown = kind.as_str().to_uppercase().parse::<FaultKind>().expect_err("words are lower case");
            assert!(unknown.to_string().contains(kind.as_str()), "{unknown}");
        }
    }
}
