-- Stops counting a session that has closed. If the session was removed, also deletes it from the
-- sweep schedule and from the lists of the nodes that may hold something in it. Idempotent.
-- KEYS: sweep schedule, closed sessions, principals by open sessions, open sessions of the
-- principal, lists of sessions by node.
-- ARGV: session as in the sweep schedule, principal, session as in the lists of nodes, 1 if the
-- session was removed.
local counts
if ARGV[4] == '1' then
  local was_closed = redis.call('SREM', KEYS[2], ARGV[1]) == 1
  counts = redis.call('ZREM', KEYS[1], ARGV[1]) == 1 and not was_closed
  for at = 5, #KEYS do redis.call('ZREM', KEYS[at], ARGV[3]) end
else
  counts = redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('SADD', KEYS[2], ARGV[1]) == 1
  redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[1]), 1))
end
redis.call('SREM', KEYS[4], ARGV[1])
if counts and tonumber(redis.call('ZINCRBY', KEYS[3], -1, ARGV[2])) <= 0 then redis.call('ZREM', KEYS[3], ARGV[2]) end
return 1
