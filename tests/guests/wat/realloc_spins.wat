;; Spins where the host asks it for memory to put a result in.
(component
  (import "wasi:http/types@0.2.12" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (import "wasi:random/random@0.2.12" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (alias export $random "get-random-bytes" (func $bytes))
  (core module $memory
    (memory (export "memory") 1)
    (table (export "late") 1 funcref)
    (type $bytes (func (param i64 i32)))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (loop $again (br $again))
      (i32.const 1024)))
  (core instance $memory (instantiate $memory))
  (core func $bytes (canon lower (func $bytes)
    (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (core module $m
    (import "memory" "late" (table 1 funcref))
    (import "" "bytes" (func $bytes (param i64 i32)))
    (elem (i32.const 0) func $bytes)
    (func (export "handle") (param i32 i32)
      (call $bytes (i64.const 64) (i32.const 0))
      unreachable))
  (core instance $main (instantiate $m
    (with "memory" (instance $memory))
    (with "" (instance (export "bytes" (func $bytes))))))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $main "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.12" (instance $handler)))
