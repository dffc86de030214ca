-- Reads events if the session has the expected version. Otherwise returns the session.
-- KEYS: rows, events. ARGV: the expected version, then the names of events.
-- Returns {1, payloads}, {0} if the session does not exist, else {2, rows, names of events}.
local current = redis.call('HGET', KEYS[1], '=')
if not current then return {0} end
if current ~= ARGV[1] then
  return {2, redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[2])}
end
local payloads = {}
for at = 2, #ARGV do
  payloads[at - 1] = redis.call('HGET', KEYS[2], ARGV[at])
end
return {1, payloads}
