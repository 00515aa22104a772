//! Every limit in one table: what it is called, what a call or an upload gets that meets it, and which test shows it.
//!
//! A limit is enforced where its thing is made; what it says when it is met is an [`Exceeded`], with numbers. A guest
//! may see a refusal and go on; if its call fails after that, the limit is what the client is told.

use std::fmt;

use crate::http::problem::Code;

/// Why something was refused or ended: a limit, and a sentence with numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    pub limit: Limit,
    pub detail: String,
}

impl Exceeded {
    pub fn new(limit: Limit, detail: impl Into<String>) -> Self {
        Self { limit, detail: detail.into() }
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Exceeded {}

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident = $field:literal, $code:expr, $test:literal;)*) => {
        /// A limit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Limit { $($(#[$doc])* $limit,)* }

        impl Limit {
            pub const ALL: &[Self] = &[$(Self::$limit,)*];

            /// The setting that it is: of a function's configuration, or of the operator's.
            pub fn field(self) -> &'static str {
                match self { $(Self::$limit => $field,)* }
            }

            /// What a client gets for whom it was met. `None` where what is over it is cut, and the call goes on.
            pub fn code(self) -> Option<Code> {
                match self { $(Self::$limit => $code,)* }
            }

            /// The test that shows it, at the limit and over it.
            #[cfg(test)]
            fn test(self) -> &'static str {
                match self { $(Self::$limit => $test,)* }
            }
        }
    };
}

limits! {
    // Of a sandbox, set by its function's configuration up to the operator's maximum of the same name.
    /// Linear memory of a sandbox.
    Memory = "limits.memory", Some(Code::MemoryLimit), "memory_up_to_the_limit_and_no_further";
    /// Elements of a sandbox's tables.
    TableElements = "limits.table_elements", Some(Code::TableLimit), "table_elements_up_to_the_limit_and_no_further";
    /// Core instances that a component is made of.
    Instances = "limits.instances", Some(Code::InstanceLimit), "instances_memories_and_tables_up_to_the_limit";
    /// Linear memories that a component has.
    Memories = "limits.memories", Some(Code::InstanceLimit), "instances_memories_and_tables_up_to_the_limit";
    /// Tables that a component has.
    Tables = "limits.tables", Some(Code::InstanceLimit), "instances_memories_and_tables_up_to_the_limit";
    /// Time that a call's guest computes.
    CpuTime = "limits.cpu_time", Some(Code::CpuLimit), "a_call_may_compute_so_long_and_wait_longer";
    /// Time from a sandbox's start to its answer's last byte.
    RequestTime = "request_timeout", Some(Code::RequestTimeout), "a_call_that_spins_or_waits_too_long_ends_at_its_deadline";
    /// Time that one inference waits for a lane.
    QueueTime = "queue_timeout", Some(Code::QueueTimeout), "an_inference_may_wait_so_long";
    /// Time that one inference takes.
    InferenceTime = "inference_timeout", Some(Code::InferenceTimeout), "an_inference_may_take_so_long";
    /// Time until a function is awake, and until its sandbox has started.
    StartTime = "startup_timeout", Some(Code::StartTimeout), "a_start_may_take_so_long";
    /// Calls of a function in a second.
    FunctionCallRate = "calls_per_second", Some(Code::RateLimited), "a_function_may_be_called_so_often";
    /// Bytes of a request's body.
    RequestBytes = "limits.request_bytes", Some(Code::TooLarge), "a_request_may_be_as_large_as_the_limit_and_no_larger";
    /// Bytes of an answer's body.
    ResponseBytes = "limits.response_bytes", Some(Code::ResponseTooLarge), "an_answer_beyond_the_limit_breaks_off";
    /// Bytes of one set of headers.
    HeaderBytes = "limits.header_bytes", Some(Code::HeaderLimit), "headers_up_to_the_limit_and_no_more";
    /// Bytes that the host keeps for a sandbox: tensors, headers, bytes on their way.
    HostBytes = "limits.host_bytes", Some(Code::HostMemoryLimit), "host_bytes_up_to_the_limit_and_no_more";
    /// Handles that a guest holds.
    Resources = "limits.resources", Some(Code::ResourceLimit), "resources_up_to_the_limit_and_no_more";
    /// Bytes that one call logs.
    LogBytes = "limits.log_bytes", None, "a_flood_of_log_lines_is_cut";
    /// Bytes that a function logs per second.
    LogRate = "limits.log_bytes_per_second", None, "a_function_may_log_so_much_per_second";
    /// Outgoing requests of one call.
    OutboundRequests = "limits.outbound_requests", Some(Code::OutboundLimit), "outgoing_requests_up_to_the_limit_and_no_more";
    // Of the node, set by the operator alone.
    /// Depth of a guest's calls.
    Stack = "sandbox.stack", Some(Code::StackLimit), "recursion_ends_at_the_stacks_end";
    /// Memory of all sandboxes together.
    NodeMemory = "sandbox.memory", Some(Code::NodeMemory), "when_the_nodes_memory_is_used_up_the_next_call_is_told";
    /// Memory of all graphs and jobs on the device together.
    DeviceMemory = "cpu.memory", Some(Code::DeviceMemory), "when_the_devices_memory_is_used_up_the_next_model_is_told";
    /// Memory of a tenant's graphs and jobs on the device.
    TenantMemory = "tenant.device_memory", Some(Code::TenantMemory), "a_tenant_may_use_so_much_of_the_devices_memory";
    /// Inferences that wait for the device.
    DeviceQueue = "cpu.queue", Some(Code::ServerOverloaded), "so_many_inferences_may_wait_for_the_device";
    /// Inferences of one tenant that wait for the device.
    TenantQueue = "tenant.queue", Some(Code::TenantOverloaded), "so_many_inferences_of_a_tenant_may_wait";
    /// Calls of a tenant's functions in a second.
    CallRate = "tenant.calls_per_second", Some(Code::RateLimited), "a_tenant_may_call_so_often";
    /// Calls of a tenant's functions that run.
    Calls = "tenant.max_concurrent_calls", Some(Code::TenantOverloaded), "so_many_calls_of_a_tenant_run_and_wait";
    /// Calls of a tenant's functions that wait.
    QueuedCalls = "tenant.max_queued_calls", Some(Code::TenantOverloaded), "so_many_calls_of_a_tenant_run_and_wait";
    /// Functions of a tenant.
    Functions = "tenant.max_functions", Some(Code::QuotaExceeded), "a_tenant_may_keep_so_much";
    /// Models of a tenant.
    Models = "tenant.max_models", Some(Code::QuotaExceeded), "a_tenant_may_keep_so_much";
    /// Keys of a tenant.
    Keys = "tenant.max_keys", Some(Code::QuotaExceeded), "a_tenant_may_have_so_many_keys";
    /// Bytes of a tenant's components and models.
    StoredBytes = "tenant.stored_bytes", Some(Code::QuotaExceeded), "a_tenant_may_keep_so_much";
    /// What a tenant may spend in a month.
    Budget = "tenant.budget_hard", Some(Code::BudgetExhausted), "a_tenant_may_spend_so_much_in_a_month";
    /// Money in a month, of a tenant.
    Spend = "tenant.spend_hard", Some(Code::BudgetExhausted), "a_tenant_may_spend_so_much_money_in_a_month";
    /// Bytes of an uploaded component.
    ComponentBytes = "limits.component_bytes", Some(Code::TooLarge), "uploads_beyond_the_operators_limits_are_refused";
    /// Bytes of an uploaded model.
    ModelBytes = "limits.model_bytes", Some(Code::TooLarge), "uploads_beyond_the_operators_limits_are_refused";
    /// Time to prepare an upload.
    PreparationTime = "preparation.time", Some(Code::PreparationTimeout), "an_upload_that_takes_too_long_to_prepare_is_refused";
    /// Memory to prepare an upload.
    PreparationMemory = "preparation.memory", Some(Code::PreparationMemory), "an_upload_that_takes_too_much_memory_to_prepare_is_refused";
    /// Memory that a model plans for one run.
    ModelMemory = "limits.model_memory", Some(Code::ModelMemory), "a_model_may_plan_so_much_memory";
    /// Work of one operator of a model.
    OperatorCost = "limits.operator_cost", Some(Code::OperatorCost), "an_operator_may_cost_so_much";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::function::FunctionConfig;

    /// A setting's value, as configuration files show it.
    fn value(of: &serde_json::Value, field: &str) -> Option<String> {
        let value = of.pointer(&format!("/{}", field.replace('.', "/")))?;
        match value {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Null if field == "cpu.memory" => Some("a quarter of the machine's".to_owned()),
            serde_json::Value::Null if field == "sandbox.memory" => Some("half of the machine's".to_owned()),
            serde_json::Value::Null => Some("none".to_owned()),
            other => Some(other.to_string()),
        }
    }

    #[test]
    fn each_limit_is_documented_with_its_values_and_has_a_test() {
        let page = include_str!("../../docs/limits.md");
        let tests = [
            include_str!("../../tests/suite/limits.rs"),
            include_str!("../../tests/suite/egress.rs"),
            include_str!("../../tests/suite/preparation.rs"),
            include_str!("../../tests/suite/sharing.rs"),
            include_str!("../../tests/suite/access.rs"),
            include_str!("../../tests/suite/quotas.rs"),
        ]
        .concat();
        let function = serde_json::to_value(FunctionConfig::default()).unwrap();
        let settings = serde_json::to_value(Settings::default()).unwrap();
        let mut lacking = String::new();
        for limit in Limit::ALL {
            let field = limit.field();
            // What a function may set has a default of its own; the operator's value of that name is the most.
            let most = value(&settings, if field.contains('.') { field } else { "limits" })
                .filter(|_| field.contains('.'))
                .or_else(|| value(&settings, &format!("limits.{field}")))
                // How often its functions are called the operator bounds by tenant.
                .or_else(|| value(&settings, &format!("tenant.{field}")))
                .unwrap_or_else(|| panic!("the operator cannot set {field}"));
            let default = value(&function, field);
            let code = limit.code().map_or("cut".to_owned(), |code| format!("`{}`", code.name()));
            let row = match default {
                Some(default) => format!("| `{field}` | {default} | {most} | {code} | `{}` |", limit.test()),
                None => format!("| `{field}` | {most} | {code} | `{}` |", limit.test()),
            };
            if !page.contains(&row) {
                lacking += &format!("{row}\n");
            }
            assert!(tests.contains(&format!("async fn {}()", limit.test())), "no test {}", limit.test());
        }
        assert!(lacking.is_empty(), "docs/limits.md lacks:\n{lacking}");
    }
}
