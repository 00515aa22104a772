;; Drops its request's handle twice.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (core func $drop (canon resource.drop $request))
  (core module $m
    (import "" "drop" (func $drop (param i32)))
    (func (export "handle") (param i32 i32)
      (call $drop (local.get 0))
      (call $drop (local.get 0))))
  (core instance $main (instantiate $m (with "" (instance (export "drop" (func $drop))))))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
