//! Who asks, and what they may.
//!
//! Whoever has a key is who the key says: a role, of a tenant or of none. What a role may is here and nowhere else; what
//! each route needs is beside the route (`http/mod.rs`). A server that was started with `--dev` asks nobody: everyone is
//! the operator, in one tenant.
//!
//! ```text
//! key.rs        keys as they are shown once, and as they are kept
//! keys.rs       all keys of this server, and what a request's key says
//! failures.rs   how often an address may be wrong
//! ```

mod failures;
mod key;
mod keys;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use failures::Failures;
pub use key::{Key, KeyRecord, Token, is_token};
pub use keys::{Keys, Wrong};

use crate::name::Name;

/// How a server tells who asks.
pub enum Access {
    /// It does not: everyone is the operator, in this tenant.
    Dev(Name),
    /// By keys.
    Keys { keys: Keys, failures: Failures },
}

impl Access {
    pub fn dev_tenant(&self) -> Option<&Name> {
        match self {
            Self::Dev(tenant) => Some(tenant),
            Self::Keys { .. } => None,
        }
    }

    pub fn keys(&self) -> Option<&Keys> {
        match self {
            Self::Dev(_) => None,
            Self::Keys { keys, .. } => Some(keys),
        }
    }
}

/// What a key's holder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Of no tenant: everything.
    Operator,
    /// Everything in its tenant, its keys included.
    Admin,
    /// Functions and models of its tenant.
    Deployer,
    /// Calls of its tenant's functions, or of those that its key names.
    Caller,
    /// Looks, and changes nothing; of no tenant, what an operator sees.
    Viewer,
}

/// What is asked of whoever uses a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To see a tenant's functions, models and logs.
    Read,
    /// To call a tenant's functions.
    Call,
    /// To change a tenant's functions and models.
    Deploy,
    /// To see and change a tenant's keys.
    Manage,
    /// To see what concerns all tenants.
    Observe,
    /// To change what concerns all tenants.
    Operate,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Deployer => "deployer",
            Self::Caller => "caller",
            Self::Viewer => "viewer",
        }
    }

    /// Whether a key of this role may belong to a tenant, or to none.
    pub fn belongs(self, to_a_tenant: bool) -> bool {
        match self {
            Self::Operator => !to_a_tenant,
            Self::Viewer => true,
            Self::Admin | Self::Deployer | Self::Caller => to_a_tenant,
        }
    }
}

/// Who made a request.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The key's id; none on a server that asks for no keys.
    pub key: Option<Arc<str>>,
    pub role: Role,
    /// The tenant that it belongs to; none for what concerns all of them.
    pub tenant: Option<Name>,
    /// The only functions that it may call, if it may not call all.
    pub functions: Option<Arc<[String]>>,
}

impl Principal {
    pub fn may(&self, right: Right) -> bool {
        let of_all = self.tenant.is_none();
        match (self.role, right) {
            (Role::Operator, _) => true,
            (Role::Admin, Right::Read | Right::Call | Right::Deploy | Right::Manage) => true,
            (Role::Deployer, Right::Read | Right::Call | Right::Deploy) => true,
            (Role::Caller, Right::Call) => true,
            (Role::Viewer, Right::Read) => true,
            (Role::Viewer, Right::Observe) => of_all,
            (Role::Admin | Role::Deployer, Right::Observe | Right::Operate) => false,
            (Role::Deployer, Right::Manage) => false,
            (Role::Caller | Role::Viewer, _) => false,
        }
    }

    /// Whether it may call a function of this name, of those that it may call at all.
    pub fn may_call(&self, function: &str) -> bool {
        self.may(Right::Call)
            && self.functions.as_ref().is_none_or(|named| named.iter().any(|named| named == function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(role: Role, tenant: Option<&str>) -> Principal {
        let tenant = tenant.map(|tenant| Name::tenant(tenant).unwrap());
        Principal { key: None, role, tenant, functions: None }
    }

    #[test]
    fn each_role_may_what_its_name_says() {
        use Right::{Call, Deploy, Manage, Observe, Operate, Read};
        let rights = [Read, Call, Deploy, Manage, Observe, Operate];
        let may = |role, tenant| -> Vec<Right> {
            let principal = principal(role, tenant);
            rights.into_iter().filter(|right| principal.may(*right)).collect()
        };
        assert_eq!(may(Role::Operator, None), rights);
        assert_eq!(may(Role::Admin, Some("t")), [Read, Call, Deploy, Manage]);
        assert_eq!(may(Role::Deployer, Some("t")), [Read, Call, Deploy]);
        assert_eq!(may(Role::Caller, Some("t")), [Call]);
        assert_eq!(may(Role::Viewer, Some("t")), [Read]);
        assert_eq!(may(Role::Viewer, None), [Read, Observe]);
    }

    #[test]
    fn a_key_that_names_functions_calls_no_other() {
        let mut caller = principal(Role::Caller, Some("t"));
        assert!(caller.may_call("f"));
        caller.functions = Some(["g".to_owned()].into());
        assert!(!caller.may_call("f") && caller.may_call("g"));
        caller.role = Role::Viewer;
        assert!(!caller.may_call("g"));
    }

    #[test]
    fn operators_belong_to_no_tenant_and_admins_to_one() {
        let belongs = |role: Role| (role.belongs(true), role.belongs(false));
        let all = [Role::Operator, Role::Admin, Role::Deployer, Role::Caller, Role::Viewer].map(belongs);
        assert_eq!(all, [(false, true), (true, false), (true, false), (true, false), (true, true)]);
    }
}
