//! Which features of our crates a normal build may switch on; it knows no dependency rule.

use cargo_metadata::{DependencyKind, Metadata};

use super::Finding;

/// A feature that no normal build may have.
struct Barred {
    of: &'static str,
    feature: &'static str,
    /// Crates that may have it all the same.
    except: &'static [&'static str],
    /// A feature of the same name, which is barred itself, may pass it on.
    is_passed_on: bool,
    advice: &'static str,
}

const CRASH_POINTS: Barred = Barred {
    of: "core-delivery",
    feature: "crash-points",
    except: &[],
    is_passed_on: true,
    advice: "it lets the environment end the process: switch it on for the command that runs the crash tests only",
};

const BARRED: &[Barred] = &[
    Barred {
        of: "core-delivery",
        feature: "testing",
        except: &["testbed"],
        is_passed_on: false,
        advice: "it makes proofs of a claim without a claim: switch it on in [dev-dependencies] only",
    },
    CRASH_POINTS,
    Barred { of: "app-billing", ..CRASH_POINTS },
];

/// A crate of the workspace switches on a feature in its normal build.
#[derive(Debug)]
pub(super) struct Requested {
    by: String,
    of: String,
    feature: String,
    /// Where it says so.
    place: String,
}

/// All features that the manifests of the workspace ask for, dev-dependencies aside.
pub(super) fn requested(metadata: &Metadata) -> Vec<Requested> {
    let mut all = Vec::new();
    for package in metadata.workspace_packages() {
        let by = package.name.to_string();
        let mut add = |of: &str, feature: &str, place: String| {
            let (by, of, feature) = (by.clone(), of.to_owned(), feature.to_owned());
            all.push(Requested { by, of, feature, place });
        };
        let normal = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        for dependency in normal {
            for feature in &dependency.features {
                add(&dependency.name, feature, "its dependencies".to_owned());
            }
        }
        for (name, values) in &package.features {
            let place = of_feature(name);
            for value in values.iter().filter(|value| !value.starts_with("dep:")) {
                match value.split_once('/') {
                    Some((of, feature)) => add(of.trim_end_matches('?'), feature, place.clone()),
                    None => add(&package.name, value, place.clone()),
                }
            }
        }
    }
    all
}

fn of_feature(name: &str) -> String {
    format!("its feature {name}")
}

/// Every request of a barred feature.
pub(super) fn check(requested: &[Requested]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for barred in BARRED {
        let breaks = |request: &&Requested| {
            request.of == barred.of
                && request.feature == barred.feature
                && !barred.except.contains(&request.by.as_str())
                && !(barred.is_passed_on && request.place == of_feature(barred.feature))
        };
        findings.extend(requested.iter().filter(breaks).map(|Requested { by, of, feature, place }| Finding {
            rule: "testing features are for tests",
            what: format!("{by} switches on {of}/{feature} in {place}"),
            advice: barred.advice,
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(by: &str, of: &str, feature: &str) -> Requested {
        Requested { by: by.into(), of: of.into(), feature: feature.into(), place: "its dependencies".into() }
    }

    #[test]
    fn crash_points_are_passed_on_and_never_part_of_another_feature() {
        let of_app = |of: &str, place: &str| Requested {
            place: of_feature(place),
            ..request("app-billing", of, "crash-points")
        };
        assert!(check(&[of_app("core-delivery", "crash-points")]).is_empty());
        for place in ["default", "integration"] {
            assert_eq!(check(&[of_app("core-delivery", place), of_app("app-billing", place)]).len(), 2, "{place}");
        }
        assert_eq!(check(&[request("infra-postgres", "core-delivery", "crash-points")]).len(), 1);
    }

    #[test]
    fn a_normal_dependency_may_not_have_the_kernels_testing_kit() {
        let findings = check(&[
            request("infra-postgres", "core-delivery", "testing"),
            request("testbed", "core-delivery", "testing"),
            request("infra-postgres", "other", "testing"),
        ]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].what, "infra-postgres switches on core-delivery/testing in its dependencies");
    }
}
