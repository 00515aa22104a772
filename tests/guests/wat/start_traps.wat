;; Traps in its start function.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (core module $m
    (func $start unreachable)
    (start $start)
    (func (export "handle") (param i32 i32)))
  (core instance $main (instantiate $m))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
