-- Loads a session unless it has the version that the caller knows.
-- KEYS: rows, events. ARGV: the known version, or empty.
-- Returns {2, rows, names of events}, {1} if the session has the known version, {0} if it does not
-- exist.
local current = redis.call('HGET', KEYS[1], '=')
if not current then return {0} end
if current == ARGV[1] then return {1} end
return {2, redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[2])}
