-- Commits to a session if it has the expected version. Otherwise returns the session.
--
-- KEYS: rows, events.
-- ARGV: the expected version (empty if the session must not exist), the new version (empty to write
-- nothing), the time to live of the session, the number of rows to put, rows to delete, events to
-- append, events to delete, 1 if the commit must succeed on a full server; then these rows and
-- events.
-- Returns {1} if it has committed, {0} if the session does not exist, else {2, rows, names of
-- events}.
local current = redis.call('HGET', KEYS[1], '=') or ''
if current ~= ARGV[1] then
  if current == '' then return {0} end
  return {2, redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[2])}
end

-- Lua cannot unpack more than some thousand arguments at once.
local function each(command, key, first, count, width)
  local last = first + count * width - 1
  while first <= last do
    local stop = math.min(first + 1000 * width - 1, last)
    redis.call(command, key, unpack(ARGV, first, stop))
    first = stop + 1
  end
  return last + 1
end

-- A full server refuses commands that take memory, unless the script has written before. Then it
-- lets the script complete.
if ARGV[8] == '1' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], '=', ARGV[2])
  local at = each('HSET', KEYS[1], 9, tonumber(ARGV[4]), 2)
  at = each('HDEL', KEYS[1], at, tonumber(ARGV[5]), 1)
  at = each('HSET', KEYS[2], at, tonumber(ARGV[6]), 2)
  each('HDEL', KEYS[2], at, tonumber(ARGV[7]), 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1}
