//! Host names of functions: `{function}.{tenant}.{domain}` for each, and names of their own.
//!
//! A request to such a host is one to the function's path, and is looked at as that: its key, its rates and its limits are
//! the same, and no other route is there. Names of functions' own are the operator's to allow, for whoever has the server's
//! own name could take its place.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Uri, header};

use crate::config::HttpConfig;
use crate::function::FunctionRecord;
use crate::http::problem::{Code, Problem};
use crate::name::Name;

/// The names that functions have of their own.
#[derive(Default)]
pub struct Hosts(RwLock<HashMap<String, Owner>>);

/// Tenant and function.
type Owner = (Arc<str>, Arc<str>);

/// The names that a function's revisions have, of those that get calls.
fn named(record: &FunctionRecord) -> BTreeSet<&str> {
    let serving = record.revisions.iter().filter(|revision| record.serves(revision.revision));
    serving.flat_map(|revision| revision.config.hostnames.iter().map(String::as_str)).collect()
}

/// A host's name as it is compared: without a port or a last dot, in small letters.
fn plain(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl Hosts {
    /// That a function may have the names that it is to have.
    ///
    /// # Errors
    /// A name that the operator does not allow, or that another function has.
    pub fn check(&self, record: &FunctionRecord, config: &HttpConfig) -> Result<(), Problem> {
        let hosts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for name in named(record) {
            if !config.allows_host(name) {
                let detail = format!("hostnames: the operator does not let functions have `{name}`");
                return Err(Problem::new(Code::InvalidConfig, detail));
            }
            let is_its =
                |(tenant, function): &Owner| **tenant == *record.tenant && **function == *record.name;
            if hosts.get(name).is_some_and(|owner| !is_its(owner)) {
                let detail = format!("hostnames: another function has `{name}`");
                return Err(Problem::new(Code::Conflict, detail));
            }
        }
        Ok(())
    }

    /// Gives a function the names that it has now, and takes those that it had and has no more. In one step: a request to a
    /// name that stays finds its function at any time.
    pub fn settle(&self, record: &FunctionRecord) {
        let owner: Owner = (record.tenant.as_str().into(), record.name.as_str().into());
        let names = named(record);
        let mut hosts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|name, of| *of != owner || names.contains(name.as_str()));
        for name in names {
            if hosts.get(name) != Some(&owner) {
                hosts.insert(name.to_owned(), owner.clone());
            }
        }
    }

    /// Takes all of a function's names.
    pub fn remove(&self, tenant: &str, function: &str) {
        let mut hosts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, (of, name)| (&**of, &**name) != (tenant, function));
    }

    /// The names that a function is called by.
    pub fn of(&self, tenant: &str, function: &str, config: &HttpConfig) -> Vec<String> {
        let own = config.domain.as_ref().map(|domain| format!("{function}.{tenant}.{domain}"));
        let hosts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let has = hosts.iter().filter(|(_, (of, name))| (&**of, &**name) == (tenant, function));
        let mut given: Vec<String> = has.map(|(name, _)| name.clone()).collect();
        given.sort_unstable();
        own.into_iter().chain(given).collect()
    }

    /// The function that a host is.
    fn find(&self, host: &str, config: &HttpConfig) -> Option<Owner> {
        let domain = config.domain.as_deref();
        let below = domain.and_then(|domain| host.strip_suffix(domain)?.strip_suffix('.'));
        if let Some((function, tenant)) = below.and_then(|labels| labels.split_once('.'))
            && let (Ok(function), Ok(tenant)) = (Name::function(function), Name::tenant(tenant))
        {
            return Some(((&*tenant).into(), (&*function).into()));
        }
        let hosts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (tenant, function) = hosts.get(host)?;
        // What the operator no longer allows is no name any more.
        config.allows_host(host).then(|| (Arc::clone(tenant), Arc::clone(function)))
    }

    /// Where a request really goes, if its host is a function's: to the function's path, with its own behind that.
    pub fn rewrite(&self, uri: &Uri, headers: &HeaderMap, config: &HttpConfig) -> Option<Uri> {
        if config.domain.is_none() && config.hostnames.is_empty() {
            return None;
        }
        // A whole URI counts, and the header beside it does not. Source: RFC 9112, section 3.2.2.
        let host = match uri.authority().map(Authority::host) {
            Some(authority) => authority,
            None => headers.get(header::HOST)?.to_str().ok()?,
        };
        let (tenant, function) = self.find(&plain(host), config)?;
        let asked = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let asked = if asked == "*" { "/" } else { asked };
        let slash = if asked.starts_with('/') { "" } else { "/" };
        let uri = format!("/fn/{tenant}/{function}{slash}{asked}").parse();
        // One that gets too long goes nowhere.
        Some(uri.unwrap_or_else(|_| Uri::from_static("/fn/")))
    }
}

/// That a name can be a host's: labels of small letters, digits and hyphens with dots between them, two at least.
///
/// # Errors
/// A sentence that shows the name and the rule.
pub fn check_host(name: &str) -> Result<(), String> {
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_made_of_labels = name.split('.').all(|label| Name::function(label).is_ok());
    if name.contains('.') && name.len() <= 253 && !is_number && is_made_of_labels {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(format!(
        "`{}` is not a host's name: use labels of small letters, digits and hyphens, two at least, with dots between \
         them",
        shown.escape_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> HttpConfig {
        HttpConfig { domain: Some("weir.example".to_owned()), ..HttpConfig::default() }
    }

    #[test]
    fn a_functions_host_is_its_path_and_nothing_else_is() {
        let hosts = Hosts::default();
        let goes = |uri: &str, host: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            hosts.rewrite(&uri.parse().unwrap(), &headers, &config()).map(|uri| uri.to_string())
        };
        let to = |path: &str| Some(format!("/fn/acme/rank{path}"));
        assert_eq!(goes("/a/b%20c?x=1", "rank.acme.weir.example"), to("/a/b%20c?x=1"));
        assert_eq!(goes("/", "RANK.acme.Weir.Example.:8080"), to("/"));
        assert_eq!(goes("/v1/functions", "rank.acme.weir.example"), to("/v1/functions"));
        assert_eq!(goes("/fn/other/f/", "rank.acme.weir.example"), to("/fn/other/f/"));
        assert_eq!(goes("*", "rank.acme.weir.example"), to("/"));
        assert_eq!(goes("http://rank.acme.weir.example?x", "weir.example"), to("/?x"));
        assert_eq!(goes("http://weir.example/v1/functions", "rank.acme.weir.example"), None);
        for host in [
            "weir.example",
            "acme.weir.example",
            "a.rank.acme.weir.example",
            "rank.acme.evilweir.example",
            "rank.acmeweir.example",
            ".acme.weir.example",
            "rank..weir.example",
            "rank.system.weir.example",
            "localhost:7070",
            "127.0.0.1",
            "[::1]:7070",
            "",
        ] {
            assert_eq!(goes("/", host), None, "{host}");
        }
    }

    #[test]
    fn a_name_that_stays_is_there_while_others_come_and_go() {
        let config = HttpConfig { hostnames: vec!["*.example.com".to_owned()], ..HttpConfig::default() };
        let record = |names: &[&str]| -> FunctionRecord {
            let hostnames: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            serde_json::from_value(serde_json::json!({
                "tenant": "acme",
                "name": "rank",
                "revisions": [{
                    "revision": 1, "digest": "", "bytes": 1, "config": { "hostnames": hostnames }, "imports": [],
                    "created": "2026-01-01T00:00:00Z",
                }],
                "traffic": [{ "revision": 1, "weight": 1 }],
            }))
            .unwrap()
        };
        let (one, both) = (record(&["a.example.com"]), record(&["a.example.com", "b.example.com"]));
        let hosts = Hosts::default();
        hosts.settle(&one);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for _ in 0..20_000 {
                    hosts.settle(&both);
                    hosts.settle(&one);
                }
            });
            while !changes.is_finished() {
                assert!(hosts.find("a.example.com", &config).is_some());
            }
        });
        assert!(hosts.find("b.example.com", &config).is_none(), "it went");
    }

    #[test]
    fn hosts_have_names_of_two_labels_or_more() {
        for good in ["a.b", "rank.example.com", "xn--bcher-kva.example"] {
            assert!(check_host(good).is_ok(), "{good}");
        }
        for bad in
            ["", "localhost", "a.", ".a", "a..b", "A.b", "a.b:80", "*.a.b", "127.0.0.1", "a b.c", "a/b.c"]
        {
            assert!(check_host(bad).is_err(), "{bad}");
        }
    }
}
