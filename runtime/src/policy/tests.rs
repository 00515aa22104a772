//! Each rule bites, and what a tenant's own rules leave out is the defaults'.

use serde_json::{Value, json};

use super::*;

/// Each violation as a sentence, of a deploy by `tenant`.
fn found(
    policy: &str,
    tenant: &str,
    config: Value,
    imports: &[&str],
    signed_by: Option<&str>,
) -> Vec<String> {
    let policy = Policy::parse(policy).unwrap();
    let config: FunctionConfig = serde_json::from_value(config).unwrap();
    let imports: Vec<String> = imports.iter().map(|import| (*import).to_owned()).collect();
    let violations = policy.violations(tenant, Asked { config: &config, imports: &imports, signed_by });
    violations.iter().map(Violation::to_string).collect()
}

fn of_config(rules: &str, config: Value) -> Vec<String> {
    found(&format!("[defaults]\n{rules}"), "acme", config, &[], None)
}

#[test]
fn without_rules_all_is_allowed() {
    let config = json!({
        "models": ["m"], "env": { "A": "1" }, "egress": ["example.com"], "device": "gpu", "class": "critical",
        "public": true, "allow_model_bytes": true,
    });
    assert_eq!(found("", "acme", config, &["wasi:sockets/tcp@0.2.0"], None), [""; 0]);
}

#[test]
fn every_list_bites() {
    let imports = ["wasi:http/types@0.2.3", "wasi:nn/graph@0.2.0-rc-2024-10-28", "wasi:sockets/tcp@0.2.3"];
    let rules = "[defaults]\nimports = [\"wasi:http/*\", \"wasi:nn/graph\"]";
    assert_eq!(
        found(rules, "acme", json!({}), &imports, None),
        ["imports: wasi:sockets/tcp@0.2.3 (allowed: wasi:http/*, wasi:nn/graph)"]
    );
    assert_eq!(
        of_config(r#"models = ["own-*", "shared"]"#, json!({ "models": ["own-a", "shared", "b", "c"] })),
        ["models: b (allowed: own-*, shared)", "models: c (allowed: own-*, shared)"]
    );
    assert_eq!(
        of_config(r#"env = ["APP_*"]"#, json!({ "env": { "APP_X": "1", "LD_X": "2" } })),
        ["env: LD_X (allowed: APP_*)"]
    );
    assert_eq!(
        of_config(
            r#"egress = ["*.acme.example"]"#,
            json!({ "egress": ["api.acme.example", "other.example"] })
        ),
        ["egress: other.example (allowed: *.acme.example)"]
    );
    assert_eq!(of_config(r#"egress = ["*"]"#, json!({ "egress": ["other.example:8443"] })), [""; 0]);
    assert_eq!(
        of_config("egress = []", json!({ "egress": ["other.example"] })),
        ["egress: other.example (allowed: nothing)"]
    );
    assert_eq!(
        of_config(r#"devices = ["cpu"]"#, json!({ "device": "gpu" })),
        ["devices: gpu (allowed: cpu)"]
    );
    assert_eq!(
        of_config(r#"classes = ["standard", "batch"]"#, json!({ "class": "critical" })),
        ["classes: critical (allowed: standard, batch)"]
    );
}

#[test]
fn every_switch_bites() {
    assert_eq!(of_config("public = false", json!({ "public": true })), ["public: true (allowed: false)"]);
    assert_eq!(of_config("public = true", json!({ "public": true })), [""; 0]);
    assert_eq!(
        of_config("allow_model_bytes = false", json!({ "allow_model_bytes": true })),
        ["allow_model_bytes: true (allowed: false)"]
    );
    let signed = |by| found("[defaults]\nrequire_signature = true", "acme", json!({}), &[], by);
    assert_eq!(
        signed(None),
        ["require_signature: no signature (allowed: a signature by a key of the tenant)"]
    );
    assert_eq!(signed(Some("release")), [""; 0]);
}

#[test]
fn every_most_bites_above_it_and_not_at_it() {
    let config = serde_json::to_value(FunctionConfig::default()).unwrap();
    for field in Most::FIELDS {
        let (place, at) = match config.get(field) {
            Some(at) => ("", at),
            None => ("limits", &config["limits"][field]),
        };
        // A value of its own kind that is above what the configuration's default is.
        let above = match at {
            Value::Number(at) => json!(at.as_u64().unwrap() + 1),
            Value::String(_) => json!("3days"),
            other => panic!("{field} is {other}"),
        };
        let asked = match place {
            "" => json!({ *field: above }),
            place => json!({ place: { *field: above } }),
        };
        let rules = format!("limits.{field} = {at}");
        assert_eq!(of_config(&rules, json!({})), [""; 0], "at the most");
        let found = of_config(&rules, asked);
        let [only] = found.as_slice() else { panic!("{field}: {found:?}") };
        assert!(
            only.starts_with(&format!("limits.{field}: ")) && only.contains("(allowed: at most "),
            "{only}"
        );
    }
    assert_eq!(
        of_config("limits.memory = \"128MiB\"\nlimits.request_timeout = \"5s\"", json!({})),
        [
            "limits.memory: 256.0 MiB (allowed: at most 128.0 MiB)",
            "limits.request_timeout: 30s (allowed: at most 5s)"
        ]
    );
}

#[test]
fn a_tenants_rules_take_the_place_of_the_defaults_one_by_one() {
    let policy = r#"
        [defaults]
        models = ["shared"]
        public = false
        require_signature = true
        [defaults.limits]
        memory = "64MiB"
        max_queue = 10
        [tenants.acme]
        models = ["own"]
        require_signature = false
        [tenants.acme.limits]
        memory = "1GiB"
    "#;
    let config = json!({ "models": ["own"], "public": true });
    let allowed = ["public: true (allowed: false)", "limits.max_queue: 1000 (allowed: at most 10)"];
    assert_eq!(found(policy, "acme", config.clone(), &[], None), allowed);
    assert_eq!(
        found(policy, "other", config, &[], None),
        [
            "models: own (allowed: shared)",
            "public: true (allowed: false)",
            "require_signature: no signature (allowed: a signature by a key of the tenant)",
            "limits.memory: 256.0 MiB (allowed: at most 64.0 MiB)",
            "limits.max_queue: 1000 (allowed: at most 10)",
        ]
    );
}

#[test]
fn what_is_wrong_in_a_document_is_named() {
    let wrong = |text: &str| format!("{:#}", Policy::parse(text).unwrap_err());
    assert!(wrong("[default]").contains("`default`"));
    assert!(wrong("[defaults]\nimport = []").contains("`import`"));
    assert!(wrong("[defaults.limits]\nmemry = 1").contains("`memry`"));
    assert!(wrong("[defaults.limits]\ncpu_time = 5").contains("cpu_time"));
    assert!(wrong("[defaults]\nclasses = [\"urgent\"]").contains("urgent"));
    assert!(wrong("[defaults]\negress = [\"http://a.example\"]").contains("leave out the scheme"));
    assert!(wrong("[tenants.Acme]").contains("`Acme` is not a tenant's name"));
    assert!(
        wrong("[tenants.acme]\nimports = [\"http\"]").contains("tenants.acme.imports: `http` is no pattern")
    );
    assert!(wrong("[defaults]\nmodels = [\"a/*\"]").contains("defaults.models: `a/*` is no pattern"));
    assert!(wrong("[defaults]\nenv = [\"A=B\"]").contains("defaults.env: `A=B` is no pattern"));
}

#[test]
fn the_documented_example_is_a_policy() {
    let page = include_str!("../../../docs/policy.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let policy = Policy::parse(example).unwrap();
    let Rules { imports, models, env, egress, devices, classes, public, allow_model_bytes, .. } =
        &policy.rules.defaults;
    assert!(imports.is_some() && models.is_some() && env.is_some() && egress.is_some());
    assert!(devices.is_some() && classes.is_some() && public.is_some() && allow_model_bytes.is_some());
    assert!(policy.rules.tenants.contains_key("acme") && policy.rules.defaults.require_signature.is_some());
    // Every limit that there is has a row.
    for field in Most::FIELDS {
        assert!(page.contains(&format!("`{field}`")), "docs/policy.md lacks {field}");
    }
}
