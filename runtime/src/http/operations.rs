//! What each route does, for the description: one entry per route of the router.

use super::audit::{AuditLog, AuditQuery};
use super::billing::{BillingView, CreditList, CreditView, InvoiceQuery, NewCredit};
use super::devices::Devices;
use super::functions::{
    DeployQuery, DeployView, FunctionList, FunctionQuery, FunctionView, LogQuery, LogView,
};
use super::keys::{KeyList, KeyQuery, MadeKey, Rotation, Wanted};
use super::models::{ModelList, ModelQuery, ModelView, UploadQuery};
use super::openapi::{Operation, Takes};
use super::problem::Code;
use super::rates::{RateCardList, RateCardQuery, Rates, RestateQuery};
use super::tenants::{TenantList, TenantQuery, TenantView};
use super::traffic::{Rollback, Split, TrafficView};
use super::usage::{RecordList, RecordQuery, UsageQuery, UsageView};
use crate::function::FunctionConfig;
use crate::meter::money::Billing;
use crate::meter::money::card::RateCard;
use crate::meter::money::invoice::Invoice;
use crate::model::ModelConfig;
use crate::tenant::ShareConfig;

/// What goes wrong while an upload is opened.
const OPENING: &[Code] =
    &[Code::ServerOverloaded, Code::PreparationTimeout, Code::PreparationMemory, Code::PreparationFailed];

/// What goes wrong while a revision is tried, before it gets calls.
const TRYING: &[Code] = &[
    Code::FunctionFailed,
    Code::MemoryLimit,
    Code::TableLimit,
    Code::InstanceLimit,
    Code::StackLimit,
    Code::CpuLimit,
    Code::HostMemoryLimit,
    Code::ResourceLimit,
    Code::NodeMemory,
    Code::RequestTimeout,
];

/// Methods, `ANY` for all, and paths as the router has them, and what is done there.
pub fn all() -> Vec<(&'static str, &'static str, Operation)> {
    let does = Operation::new;
    vec![
        (
            "GET",
            "/healthz",
            does("health", "Whether the server lives").gives_as::<String>("200", "It does", "text/plain"),
        ),
        (
            "GET",
            "/readyz",
            does("readiness", "Whether the server takes changes")
                .gives_as::<String>("200", "It does", "text/plain")
                .fails(&[Code::StorageUnavailable, Code::Stopping]),
        ),
        (
            "GET",
            "/openapi.json",
            does("description", "This description").gives::<serde_json::Value>("200", "OpenAPI 3.1"),
        ),
        (
            "GET",
            "/metrics",
            does("metrics", "Counts and gauges, as Prometheus reads them").gives_as::<String>(
                "200",
                "OpenMetrics text",
                "application/openmetrics-text",
            ),
        ),
        (
            "GET",
            "/v1/functions",
            does("list-functions", "A tenant's functions, by name")
                .of_tenant()
                .asks::<FunctionQuery>()
                .gives::<FunctionList>("200", "A page of them"),
        ),
        (
            "GET",
            "/v1/functions/{name}",
            does("show-function", "A function, its revisions and traffic")
                .of_tenant()
                .gives::<FunctionView>("200", "The function")
                .tagged()
                .fails(&[Code::StorageUnavailable]),
        ),
        (
            "DELETE",
            "/v1/functions/{name}",
            does("delete-function", "Delete a function; calls that run go on to their end")
                .of_tenant()
                .changes()
                .conditional()
                .gives_nothing("It is gone"),
        ),
        (
            "POST",
            "/v1/functions/{name}/revisions",
            does("deploy", "Make a component a function's newest revision")
                .of_tenant()
                .asks::<DeployQuery>()
                .signed()
                .conditional()
                .tagged()
                .reads(Takes::Deploy(|generator| generator.subschema_for::<FunctionConfig>()))
                .changes()
                .gives::<DeployView>("201", "A new revision")
                .gives::<DeployView>(
                    "200",
                    "The newest revision is the same; it has the traffic that is asked for",
                )
                .fails(OPENING)
                .fails(&[Code::InvalidConfig, Code::InvalidComponent, Code::UnsupportedMediaType])
                .fails(&[
                    Code::PolicyViolation,
                    Code::QuotaExceeded,
                    Code::Conflict,
                    Code::StartFailed,
                    Code::StartTimeout,
                ])
                .fails(TRYING),
        ),
        (
            "PUT",
            "/v1/functions/{name}/traffic",
            does("split-traffic", "Set how calls are split over a function's revisions")
                .of_tenant()
                .takes::<Split>()
                .changes()
                .conditional()
                .tagged()
                .gives::<TrafficView>("200", "The split")
                .fails(&[Code::StartFailed, Code::StartTimeout, Code::ServerOverloaded])
                .fails(TRYING),
        ),
        (
            "POST",
            "/v1/functions/{name}/rollback",
            does(
                "roll-back",
                "Give all of a function's traffic to the revision that had it before, or to another",
            )
            .of_tenant()
            .may_take::<Rollback>()
            .once()
            .changes()
            .conditional()
            .tagged()
            .gives::<TrafficView>("200", "The split")
            .fails(&[Code::StartFailed, Code::StartTimeout])
            .fails(TRYING),
        ),
        (
            "GET",
            "/v1/functions/{name}/logs",
            does("read-log", "The last lines of a function's log, or all from now on")
                .of_tenant()
                .asks::<LogQuery>()
                .gives::<LogView>("200", "The lines; with `follow`, an event for each, as it comes")
                .gives_as::<String>("200", "", "text/event-stream")
                .fails(&[Code::StorageUnavailable, Code::StorageFull]),
        ),
        (
            "GET",
            "/v1/models",
            does("list-models", "The models that a tenant's functions find, by name")
                .of_tenant()
                .asks::<ModelQuery>()
                .gives::<ModelList>("200", "A page of them"),
        ),
        (
            "GET",
            "/v1/models/{name}",
            does("show-model", "A model: signature, configuration, and where it is in memory")
                .of_tenant()
                .gives::<ModelView>("200", "The model")
                .tagged()
                .fails(&[Code::StorageUnavailable]),
        ),
        (
            "PUT",
            "/v1/models/{name}",
            does("upload-model", "Upload a model, in place of the one of that name")
                .of_tenant()
                .asks::<UploadQuery>()
                .reads(Takes::Bytes)
                .changes()
                .conditional()
                .tagged()
                .gives::<ModelView>("201", "The model")
                .fails(OPENING)
                .fails(&[Code::InvalidModel, Code::UnsupportedFormat, Code::ModelMemory])
                .fails(&[Code::OperatorCost, Code::DeviceMemory, Code::TenantMemory, Code::QuotaExceeded]),
        ),
        (
            "DELETE",
            "/v1/models/{name}",
            does("delete-model", "Delete a model that no function may use")
                .of_tenant()
                .changes()
                .conditional()
                .gives_nothing("It is gone")
                .fails(&[Code::ModelInUse]),
        ),
        (
            "PUT",
            "/v1/models/{name}/config",
            does("configure-model", "Set how a model is held and run")
                .of_tenant()
                .takes::<ModelConfig>()
                .changes()
                .conditional()
                .tagged()
                .gives::<ModelView>("200", "The model")
                .fails(&[Code::ModelInUse]),
        ),
        (
            "GET",
            "/v1/tenants",
            does("list-tenants", "All tenants, by name")
                .asks::<TenantQuery>()
                .gives::<TenantList>("200", "A page of them"),
        ),
        (
            "GET",
            "/v1/tenants/{name}",
            does("show-tenant", "What holds for a tenant, and what it uses")
                .gives::<TenantView>("200", "The tenant")
                .tagged()
                .fails(&[Code::NotFound, Code::StorageUnavailable]),
        ),
        (
            "PUT",
            "/v1/tenants/{name}",
            does("set-tenant", "Make a tenant, or set what it may have; what is absent is the default again")
                .takes::<ShareConfig>()
                .changes()
                .conditional()
                .tagged()
                .gives::<TenantView>("201", "The tenant, which was not there")
                .gives::<TenantView>("200", "The tenant, as it is now"),
        ),
        (
            "GET",
            "/v1/tenants/{name}/billing",
            does("show-billing", "How a tenant is billed: its rate card, and prices of its own")
                .gives::<BillingView>("200", "How it is billed")
                .tagged()
                .fails(&[Code::NotFound, Code::StorageUnavailable]),
        ),
        (
            "PUT",
            "/v1/tenants/{name}/billing",
            does("set-billing", "Set how a tenant is billed from an hour on")
                .asks::<RestateQuery>()
                .takes::<Billing>()
                .changes()
                .conditional()
                .tagged()
                .gives::<BillingView>("201", "How it is billed, where nothing was set before")
                .gives::<BillingView>("200", "How it is billed")
                .fails(&[Code::NotFound, Code::Conflict]),
        ),
        (
            "GET",
            "/v1/tenants/{name}/credits",
            does("list-credits", "A tenant's credits, in the order in which they were given")
                .gives::<CreditList>("200", "All of them")
                .fails(&[Code::NotFound, Code::Conflict, Code::StorageFull, Code::StorageUnavailable]),
        ),
        (
            "POST",
            "/v1/tenants/{name}/credits",
            does("give-credit", "Give a tenant a credit")
                .asks::<RestateQuery>()
                .takes::<NewCredit>()
                .once()
                .changes()
                .gives::<CreditView>("201", "The credit")
                .fails(&[Code::NotFound, Code::Conflict]),
        ),
        (
            "GET",
            "/v1/rate-cards",
            does("list-rate-cards", "All rate cards, by name")
                .asks::<RateCardQuery>()
                .gives::<RateCardList>("200", "A page of them"),
        ),
        (
            "GET",
            "/v1/rate-cards/{name}",
            does("show-rate-card", "A rate card, with all of its versions")
                .gives::<RateCard>("200", "The card")
                .tagged()
                .fails(&[Code::NotFound, Code::StorageUnavailable]),
        ),
        (
            "PUT",
            "/v1/rate-cards/{name}",
            does("set-rates", "Make a rate card, or set its prices from an hour on")
                .asks::<RestateQuery>()
                .takes::<Rates>()
                .changes()
                .conditional()
                .tagged()
                .gives::<RateCard>("201", "The card, which was not there")
                .gives::<RateCard>("200", "The card, as it is now")
                .fails(&[Code::Conflict]),
        ),
        (
            "GET",
            "/v1/invoices/{month}",
            does("show-invoice", "What a tenant owes for a month, or so far")
                .of_tenant()
                .asks::<InvoiceQuery>()
                .gives::<Invoice>("200", "The invoice; with `format=csv` as a table")
                .gives_as::<String>("200", "", "text/csv")
                .fails(&[Code::Conflict, Code::StorageFull, Code::StorageUnavailable]),
        ),
        (
            "GET",
            "/v1/keys",
            does("list-keys", "Keys, oldest first")
                .of_tenant_or_none()
                .asks::<KeyQuery>()
                .gives::<KeyList>("200", "A page of them"),
        ),
        (
            "POST",
            "/v1/keys",
            does("make-key", "Make a key, which is shown once")
                .of_tenant_or_none()
                .takes::<Wanted>()
                .once()
                .changes()
                .gives::<MadeKey>("201", "The key"),
        ),
        (
            "DELETE",
            "/v1/keys/{id}",
            does("revoke-key", "Revoke a key, at once and for good")
                .of_tenant_or_none()
                .changes()
                .gives_nothing("It opens nothing any more")
                .fails(&[Code::Conflict]),
        ),
        (
            "POST",
            "/v1/keys/{id}/rotate",
            does("rotate-key", "Make a key like this one, which itself ends after a while")
                .of_tenant_or_none()
                .takes::<Rotation>()
                .once()
                .changes()
                .gives::<MadeKey>("201", "The new key"),
        ),
        (
            "GET",
            "/v1/audit",
            does("read-audit-log", "Who changed what: the newest entries, or those after one")
                .of_tenant_or_none()
                .asks::<AuditQuery>()
                .gives::<AuditLog>("200", "A part of the log, oldest first")
                .fails(&[Code::StorageUnavailable]),
        ),
        (
            "GET",
            "/v1/usage",
            does("read-usage", "What was used, summed up by time and by what calls have in common")
                .of_tenant_or_none()
                .asks::<UsageQuery>()
                .gives::<UsageView>("200", "A page of sums; with `format=csv` all of them as a table")
                .gives_as::<String>("200", "", "text/csv")
                .fails(&[Code::StorageUnavailable]),
        ),
        (
            "GET",
            "/v1/usage/records",
            does("read-usage-records", "Usage records, oldest first")
                .of_tenant_or_none()
                .asks::<RecordQuery>()
                .gives::<RecordList>("200", "A part of the records")
                .gives_as::<String>("200", "", "application/jsonl")
                .gives_as::<String>("200", "", "text/csv")
                .fails(&[Code::StorageUnavailable]),
        ),
        (
            "POST",
            "/v1/backup",
            does("back-up", "A copy of all that is kept, as of now")
                .gives_as::<serde_json::Value>("200", "A tar archive", "application/x-tar")
                .changes()
                .fails(&[Code::ServerOverloaded]),
        ),
        (
            "GET",
            "/v1/devices",
            does("show-devices", "What the devices do, and for whom").gives::<Devices>("200", "The devices"),
        ),
        ("ANY", "/fn/{*call}", does("call", "Call a function").reads(Takes::Bytes).calls()),
    ]
}
